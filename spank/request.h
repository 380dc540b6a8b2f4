/*
 * The interface of libslurmv.so, the Go half of the plugin. The shim loads
 * libslurmv.so only in sbatch and salloc, and only for a job with VM options.
 */
#ifndef SLURMV_REQUEST_H
#define SLURMV_REQUEST_H

/* Each string is NULL or allocated; the caller frees it. */
struct slurmv_answer {
	char *spec;    /* the checked request, for the nodes; NULL for a job without VMs */
	char *request; /* its resources on one line, for job_submit.lua; NULL for none */
	char *error;   /* why the request is refused; lines of #SBATCH may follow */
	char *fabric;  /* the tags that the job wants, for the controllers; NULL for none */
};

/*
 * Checks the VM options of a submission. config is the path of slurmv.toml, options
 * are the "name=value" texts of the options that were used, ended by NULL.
 * Returns 0 with the other strings, or -1 with error.
 */
int slurmvRequest(char *config, char **options, struct slurmv_answer *answer);

#endif
