//go:build ignore

/*
 * The SPANK plugin: every symbol that Slurm calls, and what runs where.
 *
 *     sbatch, salloc      submit.c: libslurmv.so (Go) checks the VM options, and the
 *                         job carries the result as SLURMV_SPEC, SLURMV_REQUEST and
 *                         SLURMV_FABRIC
 *     srun                submit.c: a step inherits the options and adds none
 *     slurmd              nothing
 *     slurmstepd          node.c: one step of a job is the VM step: its program
 *                         is "slurmv-agent hold". The agent launches the VMs before
 *                         this task starts and reclaims them when it has ended.
 *                         fabric.c: the tasks of a job with tags on the fabric get the
 *                         variables about them
 *     slurmstepd epilog   node.c: the agent reclaims everything left of the job
 *
 * Go is never loaded on a node: it would stay in a daemon for good, or run in
 * a forked child and hang. On a node the shim starts programs instead.
 *
 * Hooks return 0 or -1. On a node only task_init_privileged returns -1. If another hook
 * fails, Slurm drains the node or ignores it, depending on Slurm's version.
 *
 * The first line keeps this file out of the Go library.
 */

#include "mark.h"
#include "shim.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#ifndef SLURMV_CONFIG
#define SLURMV_CONFIG "/etc/slurm-v/slurmv.toml"
#endif
#ifndef SLURMV_AGENT
#define SLURMV_AGENT "/usr/local/libexec/slurm-v/slurmv-agent"
#endif
#ifndef SLURMV_STATE
#define SLURMV_STATE "/var/lib/slurmv/%n"
#endif

SPANK_PLUGIN(slurmv, 1)

/* A text from a user must never be the format. */
void show_error(const char *text)
{
	slurm_error("%s", text);
}

/* ERROR_MARK lets the keeper of the VMs tell this error from Slurm's own. */
void show_node_error(const char *text)
{
	slurm_error("%s%s", ERROR_MARK, text);
}

/* Shows text without a prefix. srun passes it on to the reader of its stderr. */
void show(const char *text)
{
	slurm_spank_log("%s", text);
}

int refuse(const char *format, ...)
{
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	show_error(text);
	return -1;
}

/* Refuses a relative path: it could lead to a file of the user's. */
static bool set_path(const char **path, const char *key, const char *argument)
{
	size_t n = strlen(key);

	if (strncmp(argument, key, n) || argument[n] != '/')
		return false;
	*path = argument + n;
	return true;
}

static struct settings read_settings(int ac, char **av)
{
	struct settings s = {.config = SLURMV_CONFIG, .agent = SLURMV_AGENT, .state = SLURMV_STATE};

	for (int i = 0; i < ac; i++)
		if (!set_path(&s.config, "config=", av[i]) && !set_path(&s.agent, "agent=", av[i]) &&
		    !set_path(&s.state, "state=", av[i]))
			s.wrong = av[i];
	return s;
}

int refuse_settings(const struct settings *s)
{
	return refuse(ERROR_MARK "the argument \"%s\" in plugstack.conf is none of config=, agent=, "
		      "state= with an absolute path", s->wrong);
}

int slurm_spank_init(spank_t sp, int ac, char **av)
{
	struct settings s = read_settings(ac, av);

	switch (spank_context()) {
	case S_CTX_ALLOCATOR:
		forget_outer_job();
		return register_options(sp);
	case S_CTX_LOCAL:
		return register_options(sp);
	case S_CTX_REMOTE:
		register_options(sp); /* otherwise slurmstepd warns of unknown options */
		return 0;
	case S_CTX_SLURMD:
		if (s.wrong)
			refuse_settings(&s);
		return 0;
	default:
		return 0;
	}
}

int slurm_spank_init_post_opt(spank_t sp, int ac, char **av)
{
	struct settings s = read_settings(ac, av);

	switch (spank_context()) {
	case S_CTX_ALLOCATOR:
		return check_submission(sp, &s);
	case S_CTX_LOCAL:
		return check_srun();
	default:
		return 0;
	}
}

/* The hooks below run in slurmstepd, as root. */

int slurm_spank_user_init(spank_t sp, int ac, char **av)
{
	struct settings s = read_settings(ac, av);

	if (is_vm_step(sp, &s) || wants_tags(sp))
		expect_placement(sp);
	return 0;
}

int slurm_spank_task_post_fork(spank_t sp, int ac, char **av)
{
	(void)ac, (void)av;
	note_placement(sp);
	return 0;
}

/* In the forked child that becomes the task. Only this hook may fail a step. */
int slurm_spank_task_init_privileged(spank_t sp, int ac, char **av)
{
	struct settings s = read_settings(ac, av);

	if (is_vm_step(sp, &s))
		return is_first_task(sp) ? launch(sp, &s) : 0;
	return give_tags(sp, &s);
}

int slurm_spank_task_exit(spank_t sp, int ac, char **av)
{
	struct settings s = read_settings(ac, av);

	if (is_vm_step(sp, &s) && is_first_task(sp))
		reclaim_step(sp, &s);
	return 0;
}

/* In a process of its own, after all steps of the job, on each of its nodes. */
int slurm_spank_job_epilog(spank_t sp, int ac, char **av)
{
	struct settings s = read_settings(ac, av);

	reclaim_job(sp, &s);
	return 0;
}
