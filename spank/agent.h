/*
 * Starting slurmv-agent and listening to it.
 *
 * The agent gets /dev/null as its standard streams, descriptor 3 as a pipe on
 * which it reports in lines, a session of its own, default signals, and nothing
 * else of its caller: no other descriptor, and only the environment in envp.
 *
 *     ready         the agent stays, and the caller may go on
 *     error TEXT    an error, for the user
 *     say TEXT      progress, passed on unchanged
 *
 * Plain C without threads or allocation, because it runs in forked children of
 * slurmstepd and in slurmstepd itself. It knows nothing of Slurm.
 */
#ifndef SLURMV_AGENT_H
#define SLURMV_AGENT_H

#include <stdbool.h>

struct agent {
	const char *node; /* for messages */
	char *const *argv; /* argv[0] is the absolute path of the program */
	char *const *envp;
	bool stays;  /* the agent says "ready" and lives on, and SIGTERM cancels it;
	              * otherwise it does its work and exits with 0 */
	int seconds; /* the agent is asked to end after this time; 0 is never */
	void (*error)(const char *text);
	void (*say)(const char *text);
};

/*
 * Returns 0 when the agent is ready (or, if it does not stay, has exited with 0), else
 * -1 once it is gone. The cause has then been reported through error, unless SIGTERM
 * cancelled the launch.
 */
int agent_run(const struct agent *agent);

#endif
