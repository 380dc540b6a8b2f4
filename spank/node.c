//go:build ignore

/*
 * slurmstepd: the VM step of a job on one of its nodes, and the job's epilog. fabric.c
 * shares how it describes a job to the agent.
 */

#define _GNU_SOURCE

#include "agent.h"
#include "mark.h"
#include "shim.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifndef PLACEMENT_SECONDS
#define PLACEMENT_SECONDS 10
#endif

const char *node_name(void)
{
	const char *name = getenv("SLURMD_NODENAME");

	return name ? name : "";
}

uint32_t number(spank_t sp, spank_item_t item)
{
	uint32_t value = 0;

	spank_get_item(sp, item, &value);
	return value;
}

/* ---- which task acts ---- */

bool is_vm_step(spank_t sp, const struct settings *s)
{
	char **argv;
	int argc;

	return spank_get_item(sp, S_JOB_ARGV, &argc, &argv) == ESPANK_SUCCESS && argc >= 2 &&
	       !strcmp(argv[0], s->agent) && !strcmp(argv[1], "hold");
}

bool is_first_task(spank_t sp)
{
	int local = -1;

	return spank_get_item(sp, S_TASK_ID, &local) == ESPANK_SUCCESS && local == 0;
}

/* ---- placement ---- */

/*
 * slurmstepd forks a task, which begins with its hooks, and only then moves it into the
 * step's cgroups. An agent that is started too early stays outside, where no limit holds
 * and nothing kills it. slurmstepd calls task_post_fork after the move. The two
 * processes share a semaphore for each of the step's tasks on the node, because not all
 * versions of Slurm leave a descriptor open.
 */
static sem_t *placed;
static uint32_t tasks;

void expect_placement(spank_t sp)
{
	tasks = number(sp, S_JOB_LOCAL_TASK_COUNT);
	placed = mmap(NULL, tasks * sizeof(*placed), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (placed == MAP_FAILED)
		tasks = 0;
	for (uint32_t i = 0; i < tasks; i++)
		sem_init(&placed[i], 1, 0);
}

/* The task's own semaphore, or NULL. */
static sem_t *placement(spank_t sp)
{
	int local = -1;

	spank_get_item(sp, S_TASK_ID, &local);
	return local >= 0 && (uint32_t)local < tasks ? &placed[local] : NULL;
}

void note_placement(spank_t sp)
{
	sem_t *own = placement(sp);

	if (own)
		sem_post(own);
}

int await_placement(spank_t sp)
{
	sem_t *own = placement(sp);
	struct timespec until;
	int rc;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PLACEMENT_SECONDS;
	do
		rc = own ? sem_timedwait(own, &until) : -1;
	while (own && rc < 0 && errno == EINTR);
	if (rc < 0)
		return refuse(ERROR_MARK "node %s: Slurm has not moved the task into its cgroups, so what it starts "
			      "would be outside of the job; see slurmd's log", node_name());
	return 0;
}

/* ---- the agent's environment ---- */

/*
 * The agent runs as root, so it inherits nothing from slurmstepd. Of the variables that
 * users can set it gets only the ones named here, as data.
 */
struct environment {
	char *list[32]; /* ended by NULL */
	size_t count, used;
	bool full;
	char text[128 * 1024];
};

static struct environment environment; /* too large for a stack; hooks do not overlap */

static void add(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void add(const char *format, ...)
{
	struct environment *e = &environment;
	size_t room = sizeof(e->text) - e->used;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(e->text + e->used, room, format, args);
	va_end(args);
	e->full = e->full || n < 0 || (size_t)n >= room || e->count + 2 > sizeof(e->list) / sizeof(*e->list);
	if (e->full)
		return;
	e->list[e->count++] = e->text + e->used;
	e->used += (size_t)n + 1;
}

static spank_err_t users(spank_t sp, const char *variable, const char **value)
{
	static char text[96 * 1024 + 1]; /* as long as jobspec.Decode takes */

	*value = text;
	return spank_getenv(sp, variable, text, sizeof(text));
}

static void add_users(spank_t sp, const char *name, const char *variable)
{
	const char *value;
	spank_err_t err = users(sp, variable, &value);

	if (err == ESPANK_SUCCESS)
		add("%s=%s", name, value);
	else if (err == ESPANK_NOSPACE)
		environment.full = true;
}

/*
 * Slurm 22.05 knows the restart count in the batch step only; an srun has it in the
 * variable that it inherits from the batch script. Users can forge it, but it only names
 * the job's own things: the epilog reclaims the job whatever its count.
 */
static uint32_t restart_count(spank_t sp)
{
	uint32_t count = number(sp, S_SLURM_RESTART_COUNT);
	const char *value;

	if (count == 0 && users(sp, "SLURM_RESTART_COUNT", &value) == ESPANK_SUCCESS)
		count = (uint32_t)strtoul(value, NULL, 10);
	return count;
}

/* A variable that slurmd gave its children; users cannot change it. */
static void add_nodes(const char *name, const char *variable)
{
	const char *value = getenv(variable);

	if (value)
		add("%s=%s", name, value);
}

/* The whole environment of reclaim: its arguments name the job. */
char *const *begin_environment(void)
{
	memset(environment.list, 0, sizeof(environment.list));
	environment.count = environment.used = 0;
	environment.full = false;
	add("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
	add_nodes("SLURM_CONF", "SLURM_CONF");
	add_nodes("SLURMV_NODE", "SLURMD_NODENAME");
	return environment.list;
}

/* The job's resources on this node, whatever size the step has. */
static void add_allocation(spank_t sp)
{
	uint16_t cpus = 0;
	uint64_t memory = 0;

	spank_get_item(sp, S_JOB_NCPUS, &cpus);
	spank_get_item(sp, S_JOB_ALLOC_MEM, &memory);
	add("SLURMV_CPUS=%u", (unsigned)cpus);
	add("SLURMV_MEM=%" PRIu64, memory);
}

/* The job, its owner, this node's place in it, and the job's resources on this node. */
void add_job(spank_t sp)
{
	add("SLURMV_JOB=%" PRIu32, number(sp, S_JOB_ID));
	add("SLURMV_UID=%" PRIu32, number(sp, S_JOB_UID));
	add("SLURMV_GID=%" PRIu32, number(sp, S_JOB_GID));
	add("SLURMV_STEP=%" PRIu32, number(sp, S_JOB_STEPID));
	add("SLURMV_RESTART=%" PRIu32, restart_count(sp));
	add("SLURMV_NODE_RANK=%" PRIu32, number(sp, S_JOB_NODEID));
	add("SLURMV_NODES=%" PRIu32, number(sp, S_JOB_NNODES));
	add_allocation(sp);
}

/* ---- launch and reclaim ---- */

static int refuse_launch(spank_t sp, const struct settings *s)
{
	const char *value;

	if (s->wrong)
		return refuse_settings(s);
	if (users(sp, "SLURM_HET_SIZE", &value) != ESPANK_ENV_NOEXIST)
		return refuse(ERROR_MARK "node %s: a heterogeneous job cannot have VMs", node_name());
	if (users(sp, "SLURM_SPANK_SLURMV_SPEC", &value) == ESPANK_ENV_NOEXIST)
		return refuse(ERROR_MARK "node %s: job %" PRIu32 " has no VMs: submit it with --vm-per-node",
			      node_name(), number(sp, S_JOB_ID));
	return 0;
}

int launch(spank_t sp, const struct settings *s)
{
	char *argv[] = {(char *)s->agent, "launch", "--config", (char *)s->config, NULL};
	const struct agent agent = {
		.node = node_name(), .argv = argv, .envp = environment.list, .stays = true, .error = show_node_error, .say = show,
	};

	if (refuse_launch(sp, s) < 0)
		return -1;
	begin_environment();
	add_job(sp);
	add_users(sp, "SLURMV_SPEC", "SLURM_SPANK_SLURMV_SPEC");
	add_users(sp, "SLURMV_REQUESTED", "SLURMV_REQUESTED");
	if (environment.full)
		return refuse(ERROR_MARK "node %s: the VM options of the job are too long", node_name());
	return await_placement(sp) < 0 ? -1 : agent_run(&agent);
}

/*
 * If task_exit takes too long after a cancel, Slurm drains the node
 * (UnkillableStepTimeout, 60 s by default). The epilog does the rest, so the agent logs
 * a failure and nothing else happens.
 */
void reclaim_step(spank_t sp, const struct settings *s)
{
	char job[16], restart[16], step[16];
	char *argv[] = {(char *)s->agent, "reclaim", "--config", (char *)s->config, "--job", job,
			"--restart", restart, "--step", step, "--deadline", "20s", NULL};
	const struct agent agent = {
		.node = node_name(), .argv = argv, .envp = environment.list, .seconds = 25, .error = show_node_error, .say = show,
	};

	snprintf(job, sizeof(job), "%" PRIu32, number(sp, S_JOB_ID));
	snprintf(restart, sizeof(restart), "%" PRIu32, restart_count(sp));
	snprintf(step, sizeof(step), "%" PRIu32, number(sp, S_JOB_STEPID));
	begin_environment();
	agent_run(&agent);
}

/* ---- the epilog ---- */

bool below_state(const struct settings *s, const char *rest, char *path, size_t size)
{
	const char *state = s->state;
	size_t used = 0;

	for (; *state && used < size; state++) {
		if (state[0] == '%' && state[1] == 'n') {
			used += (size_t)snprintf(path + used, size - used, "%s", node_name());
			state++;
		} else {
			path[used++] = *state;
		}
	}
	return used < size && (size_t)snprintf(path + used, size - used, "/%s", rest) < size - used;
}

/* Looks for a run of the job in a directory of the state. Without the directory the answer is unknown. */
static bool has_run(const struct settings *s, const char *directory, uint32_t job, bool unknown)
{
	char path[4096], prefix[16];
	int n = snprintf(prefix, sizeof(prefix), "%" PRIu32 ".", job);
	bool found = false;
	DIR *runs = below_state(s, directory, path, sizeof(path)) ? opendir(path) : NULL;

	if (!runs)
		return unknown;
	for (struct dirent *e; !found && (e = readdir(runs));)
		found = !strncmp(e->d_name, prefix, (size_t)n);
	closedir(runs);
	return found;
}

/*
 * The epilog of every job of the cluster comes here, so a job that never had VMs must
 * not pay for starting a program. If the directory does not exist, the state lies
 * elsewhere, and only the program knows where. A job with tags is in a directory of its
 * own: if slurmctld has forgotten the job, no variable tells its epilog of them.
 */
static bool may_hold_something(const struct settings *s, uint32_t job)
{
	return has_run(s, "jobs", job, true) || has_run(s, "fabric/jobs", job, false);
}

/*
 * A job with tags on the fabric needs this node's word that nothing of it is left, even if
 * no task ran here. Slurm gives the epilog the variables of the job that users can no
 * longer change.
 *
 * This may take time: the node stays COMPLETING, so Slurm gives nothing to another job
 * yet. But it must not take for ever: --last drains a node that is not fit for other
 * jobs.
 */
void reclaim_job(spank_t sp, const struct settings *s)
{
	char job[16];
	char *argv[] = {(char *)s->agent, "reclaim", "--config", (char *)s->config, "--job", job,
			"--deadline", "2m", "--last", getenv("SPANK_SLURMV_FABRIC") ? "--fabric" : NULL, NULL};
	const struct agent agent = {
		.node = node_name(), .argv = argv, .envp = environment.list, .seconds = 200, .error = show_node_error, .say = show,
	};

	if (!getenv("SPANK_SLURMV_FABRIC") && !may_hold_something(s, number(sp, S_JOB_ID)))
		return;
	snprintf(job, sizeof(job), "%" PRIu32, number(sp, S_JOB_ID));
	begin_environment();
	agent_run(&agent);
}
