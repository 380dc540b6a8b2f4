//go:build ignore

/*
 * The submitting commands: they keep the VM options, and refuse wrong requests before
 * anything runs.
 */

#define _GNU_SOURCE

#include "request.h"
#include "shim.h"

#include <ctype.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int keep_option(int val, const char *text, int remote);

#include "options.h" /* options[] and OPTION_COUNT, generated from jobspec.Options */

static char *values[OPTION_COUNT];

/*
 * Slurm calls this for the lines of the script, the environment and the command line, in
 * this order, so the last value wins. Nodes do not need the values.
 */
static int keep_option(int val, const char *text, int remote)
{
	if (remote || val < 0 || val >= OPTION_COUNT)
		return 0;
	free(values[val]);
	values[val] = strdup(text ? text : "");
	return values[val] ? 0 : -1;
}

int register_options(spank_t sp)
{
	for (int i = 0; i < OPTION_COUNT; i++)
		if (spank_option_register(sp, &options[i]) != ESPANK_SUCCESS)
			return refuse("slurmv: Slurm does not take the option --%s", options[i].name);
	return 0;
}

/* FABRIC_OPTION alone makes no VM job. */
static bool needs_vms(int option)
{
	return strcmp(options[option].name, FABRIC_OPTION) != 0;
}

/* The name of a used option, or NULL; one that needs VMs if there is one. */
static const char *used_option(bool *vms)
{
	const char *used = NULL;

	*vms = false;
	for (int i = 0; i < OPTION_COUNT; i++)
		if (values[i] && !*vms) {
			*vms = needs_vms(i);
			used = options[i].name;
		}
	return used;
}

/* ---- inheritance ---- */

static bool is_of_outer_job(const char *variable)
{
	static const char *const prefixes[] = {
		"SLURM_SPANK__SLURM_SPANK_OPTION_slurmv_",
		"_SLURM_SPANK_OPTION_slurmv_",
		"SLURM_SPANK_SLURMV_",
	};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++)
		if (!strncmp(variable, prefixes[i], strlen(prefixes[i])))
			return true;
	return false;
}

/*
 * The variables about the tags of a job are not those of a job that is submitted inside
 * it. fabric/node names them, and its tests compare; SLURMV_FABRIC_JOB says that Slurm-V has set them.
 */
static void forget_outer_tags(void)
{
	static const char *const names[] = {
		"SLURMV_FABRIC_JOB", "SLURMV_VLAN", "SLURMV_PKEY", "SLURMV_VNIS",
		"SLINGSHOT_VNIS", "SLINGSHOT_DEVICES", "SLINGSHOT_SVC_IDS", "SLINGSHOT_TCS",
		"FI_CXI_COLL_JOB_ID", "FI_CXI_COLL_JOB_STEP_ID", "FI_CXI_COLL_MCAST_TOKEN",
		"FI_CXI_COLL_FABRIC_MGR_URL", "FI_CXI_HWCOLL_ADDRS_PER_JOB", "FI_CXI_HWCOLL_MIN_NODES",
		"UCX_IB_PKEY", "MV2_DEFAULT_PKEY", "OMPI_MCA_btl_openib_pkey",
	};

	if (!getenv("SLURMV_FABRIC_JOB"))
		return;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		unsetenv(names[i]);
}

/*
 * Options that are inherited from a VM job do not make a job that is submitted inside it
 * a VM job. A plain job that is submitted inside a heterogeneous one is not heterogeneous:
 * slurmctld and salloc set SLURM_HET_SIZE where it is.
 */
void forget_outer_job(void)
{
	char name[256];

	forget_outer_tags();
	unsetenv("SLURM_HET_SIZE");

	for (char **v = environ; v && *v;) {
		const char *variable = *v;

		snprintf(name, sizeof(name), "%.*s", (int)strcspn(variable, "="), variable);
		if (is_of_outer_job(variable))
			unsetenv(name);
		if (*v == variable) /* else unsetenv has moved the next variable here */
			v++;
	}
}

/*
 * The value of an option that a step inherits from its job. Slurm makes the name of the
 * variable.
 */
static const char *inherited(const char *option)
{
	char name[256];
	int n = snprintf(name, sizeof(name), "SLURM_SPANK__SLURM_SPANK_OPTION_slurmv_%s", option);

	for (int i = 0; i < n; i++)
		if (!isalnum((unsigned char)name[i]))
			name[i] = '_';
	return getenv(name);
}

static const char *changed_option(void)
{
	for (int i = 0; i < OPTION_COUNT; i++) {
		const char *outer = inherited(options[i].name);

		if (values[i] && (!outer || strcmp(values[i], outer)))
			return options[i].name;
	}
	return NULL;
}

/* ---- srun ---- */

/* Tags are reserved when a job gets its nodes, so a step has those of its job. */
static int check_tags(const char *job, const char *changed)
{
	if (!job)
		return refuse("--%s: srun alone reserves no tags. Submit a job with this option "
			      "(sbatch or salloc) and call srun in it", FABRIC_OPTION);
	if (changed)
		return refuse("--%s: the tags of job %s were fixed when it was submitted. Leave the "
			      "option out, or give it to sbatch or salloc", FABRIC_OPTION, job);
	return 0;
}

/*
 * A step runs in the VMs of its job or on the bare node, but cannot add VMs: the VMs
 * belong to the job, which asked for their CPUs and memory.
 */
int check_srun(void)
{
	bool vms;
	const char *used = used_option(&vms), *job = getenv("SLURM_JOB_ID"), *changed = changed_option();

	if (!used)
		return 0;
	if (!vms || (changed && !strcmp(changed, FABRIC_OPTION)))
		return check_tags(job, changed);
	if (!job)
		return refuse("--%s: srun alone starts no VMs. Submit a job with this option "
			      "(sbatch or salloc) and start the program in it with: "
			      "slurm-v-run [srun options] program", used);
	if (!getenv("SLURM_SPANK_SLURMV_SPEC"))
		return refuse("--%s: job %s was submitted without VM options, and a step cannot "
			      "add VMs. Give the option to sbatch or salloc", used, job);
	if (changed)
		return refuse("--%s: the VMs of job %s were fixed when it was submitted. Leave the "
			      "option out, or give it to sbatch or salloc", changed, job);
	return 0;
}

/* ---- sbatch and salloc ---- */

static pid_t loaded_by;

__attribute__((constructor)) static void remember_process(void)
{
	loaded_by = getpid();
}

/* libslurmv.so lies beside this object. A Go library can never be unloaded. */
static void *load_library(void)
{
	char path[4096];
	Dl_info self;
	void *library;

	if (!dladdr(&loaded_by, &self) || !strchr(self.dli_fname, '/'))
		return refuse("slurmv: the plugin cannot find its own path"), NULL;
	snprintf(path, sizeof(path), "%.*s/libslurmv.so",
		 (int)(strrchr(self.dli_fname, '/') - self.dli_fname), self.dli_fname);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		refuse("slurmv: load the checker of VM options: %s", dlerror());
	return library;
}

static int load_and_check(char *config, char **used, struct slurmv_answer *answer)
{
	void *library = load_library();
	__typeof__(slurmvRequest) *check;

	if (!library)
		return -1;
	check = (__typeof__(check))dlsym(library, "slurmvRequest");
	if (!check)
		return refuse("slurmv: libslurmv.so is of another version: %s", dlerror());
	return check(config, used, answer);
}

/*
 * A thread that has called Go has its signals unblocked afterwards (golang/go#55066),
 * and Go takes over SIGPIPE as soon as it is loaded. So both are saved and restored.
 */
static int in_go(char *config, char **used, struct slurmv_answer *answer)
{
	struct sigaction pipe;
	sigset_t mask;
	int rc;

	if (getpid() != loaded_by)
		return refuse("slurmv: VM options are checked in the process that loaded the plugin only");
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	sigaction(SIGPIPE, NULL, &pipe);
	rc = load_and_check(config, used, answer);
	sigaction(SIGPIPE, &pipe, NULL);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	return rc;
}

/* Fills list with "name=value" texts, ended by NULL. The caller frees the texts. */
static void list_used(char *list[OPTION_COUNT + 1])
{
	int n = 0;

	for (int i = 0; i < OPTION_COUNT; i++)
		if (values[i] && asprintf(&list[n], "%s=%s", options[i].name, values[i]) >= 0)
			n++;
	list[n] = NULL;
}

static bool keep(spank_t sp, const char *variable, const char *text)
{
	return !text || spank_job_control_setenv(sp, variable, text, 1) == ESPANK_SUCCESS;
}

/* The nodes, job_submit.lua and the controllers read these. */
static int keep_answer(spank_t sp, const struct slurmv_answer *answer)
{
	if (!keep(sp, "SLURMV_SPEC", answer->spec) || !keep(sp, "SLURMV_REQUEST", answer->request) ||
	    !keep(sp, "SLURMV_FABRIC", answer->fabric))
		return refuse("slurmv: Slurm does not take the checked VM options");
	return 0;
}

static int check_options(spank_t sp, const struct settings *s)
{
	char *used[OPTION_COUNT + 1];
	struct slurmv_answer answer = {0};
	int rc;

	list_used(used);
	rc = in_go((char *)s->config, used, &answer);
	if (rc == 0)
		rc = keep_answer(sp, &answer);
	else if (answer.error)
		show_error(answer.error);
	for (char **u = used; *u; u++)
		free(*u);
	free(answer.spec);
	free(answer.request);
	free(answer.error);
	free(answer.fabric);
	return rc == 0 ? 0 : -1;
}

/*
 * Slurm calls this once for each component of a heterogeneous job, in one process. VMs
 * are refused there: the options of one component leak into the next one, and nodes of
 * several components have no common rank for the VMs' network. Tags are those of the
 * first component, for all. Slurm submits nothing before the last call has returned.
 */
int check_submission(spank_t sp, const struct settings *s)
{
	static int components;
	static bool first_has_tags;
	bool vms;
	const char *used = used_option(&vms);

	components++;
	if (!used)
		return 0;
	if (components > 1 && vms)
		return refuse("--%s: a heterogeneous job cannot have VMs. Submit one job, "
			      "without hetjob and \" : \"", used);
	if (components > 1 && !first_has_tags)
		return refuse("--%s: all components of a heterogeneous job have the tags of the "
			      "first one. Give the option to the first component", used);
	first_has_tags = true;
	if (s->wrong)
		return refuse_settings(s);
	return check_options(sp, s);
}
