//go:build ignore

/*
 * slurmstepd: the variables about a job's tags on the fabric, in the job's tasks.
 *
 * The agent sets up the tags on the node once per job, and writes the variables into
 * STATE/fabric/jobs/JOB.RESTART/environment, with slurmctld's restart count. The first task
 * that finds no such file starts the agent. The file has one line for each variable:
 *
 *     boot ID              the kernel's; a file of an earlier boot is out of date
 *     set NAME=VALUE
 *     default NAME=VALUE   unless the user has set it
 *     step NAME            to the step's number
 *     clear NAME           unless slurmd itself runs in a job that has it
 *     end
 *
 * A job without tags has a file, too: the variables that it has inherited from another job
 * go away. If slurmd runs in a job of an outer Slurm, that job's tags are valid. A job that never
 * asked for tags has none: STATE/fabric/environment, of the same form, is for all such jobs, and
 * is there only where jobs can have tags.
 */

#define _GNU_SOURCE

#include "agent.h"
#include "mark.h"
#include "shim.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	PATH_BYTES = 4096,
	FILE_BYTES = 64 * 1024, /* a file has up to 4 KiB */
	UP_SECONDS = 60,
};

enum found { NOTHING, GIVEN, WRONG };

static char text[FILE_BYTES]; /* too large for a stack; hooks do not overlap */

/* ---- the file ---- */

/* The shim is root in a task, so root must have made it, and nobody else may change it. */
static bool is_ours(int fd, mode_t type)
{
	struct stat st;

	return fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == type && st.st_uid == geteuid() &&
	       !(st.st_mode & (S_IWGRP | S_IWOTH));
}

/* Fills text. Returns false with errno if the file cannot be read whole. */
static bool read_all(int fd, size_t size)
{
	size_t used = 0;
	ssize_t n;

	while (used < size && ((n = read(fd, text + used, size - used)) > 0 || (n < 0 && errno == EINTR)))
		used += n > 0 ? (size_t)n : 0;
	if (used >= size) /* no room for the end */
		return errno = EFBIG, false;
	text[used] = '\0';
	if (n == 0 && strlen(text) != used)
		return errno = EINVAL, false;
	return n == 0;
}

static bool read_owned(int fd, size_t size)
{
	bool done = fd >= 0;

	if (done && !is_ours(fd, S_IFREG))
		errno = EPERM, done = false;
	done = done && read_all(fd, size);
	if (fd >= 0)
		close(fd);
	return done;
}

/* Opens the job's directory; a link there would lead elsewhere. */
static int open_directory(const char *path)
{
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (dir >= 0 && !is_ours(dir, S_IFDIR)) {
		close(dir);
		errno = EPERM;
		return -1;
	}
	return dir;
}

static enum found load(const char *path)
{
	int dir = open_directory(path);
	bool done;

	if (dir < 0)
		return errno == ENOENT ? NOTHING : WRONG;
	done = read_owned(openat(dir, "environment", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), sizeof(text));
	close(dir);
	if (done)
		return GIVEN;
	return errno == ENOENT ? NOTHING : WRONG;
}

/* ---- the variables ---- */

static const char *after(const char *line, const char *word)
{
	size_t n = strlen(word);

	return strncmp(line, word, n) ? NULL : line + n;
}

static bool is_of_this_boot(const char *line)
{
	char id[64] = "";
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, id, sizeof(id) - 1);
	const char *written = after(line, "boot ");

	if (fd >= 0)
		close(fd);
	id[n < 0 ? 0 : n] = '\0';
	id[strcspn(id, "\n")] = '\0';
	return written && *id && !strcmp(written, id);
}

/* entry is "NAME=VALUE"; it is cut in two. */
static bool set(spank_t sp, char *entry, int overwrite)
{
	char *value = strchr(entry, '=');
	spank_err_t err;

	if (!value)
		return false;
	*value++ = '\0';
	err = spank_setenv(sp, entry, value, overwrite);
	return err == ESPANK_SUCCESS || (!overwrite && err == ESPANK_ENV_EXISTS);
}

static bool clear(spank_t sp, const char *name)
{
	const char *outer = getenv(name);
	spank_err_t err = outer ? spank_setenv(sp, name, outer, 1) : spank_unsetenv(sp, name);

	return err == ESPANK_SUCCESS || err == ESPANK_ENV_NOEXIST;
}

static bool set_step(spank_t sp, const char *name)
{
	char step[16];

	snprintf(step, sizeof(step), "%" PRIu32, number(sp, S_JOB_STEPID));
	return spank_setenv(sp, name, step, 1) == ESPANK_SUCCESS;
}

static bool take_line(spank_t sp, char *line)
{
	if (after(line, "set "))
		return set(sp, line + strlen("set "), 1);
	if (after(line, "default "))
		return set(sp, line + strlen("default "), 0);
	if (after(line, "step "))
		return set_step(sp, after(line, "step "));
	if (after(line, "clear "))
		return clear(sp, line + strlen("clear "));
	return false;
}

/* Sets what text says. A line that is not known comes from another version of the agent. */
static enum found apply(spank_t sp)
{
	char *rest = text, *line = strsep(&rest, "\n");

	if (!is_of_this_boot(line))
		return NOTHING;
	while ((line = strsep(&rest, "\n")) && strcmp(line, "end"))
		if (!take_line(sp, line))
			return WRONG;
	return line ? GIVEN : WRONG;
}

/* ---- where it is ---- */

/* The RESTART of a name JOB.RESTART of this job. */
static bool is_run(const char *name, uint32_t job, uint32_t *restart)
{
	char again[32];
	const char *point = strchr(name, '.');

	if (!point)
		return false;
	*restart = (uint32_t)strtoul(point + 1, NULL, 10);
	snprintf(again, sizeof(again), "%" PRIu32 ".%" PRIu32, job, *restart);
	return !strcmp(name, again);
}

/* The last run of the job of which root has a directory on the node; 0 if there is none. */
static uint32_t last_run(const char *jobs, uint32_t job)
{
	uint32_t last = 0, restart;
	DIR *dir = opendir(jobs);

	if (!dir)
		return 0;
	for (struct dirent *e; (e = readdir(dir));)
		if (is_run(e->d_name, job, &restart) && restart > last)
			last = restart;
	closedir(dir);
	return last;
}

/*
 * Writes the path of the run's directory. Slurm 22.05 knows the restart count in the batch
 * step only, and then says 0. SLURM_RESTART_COUNT is the user's word, and often that of the
 * job in which this one was submitted. So without a count it is the last run that the agent
 * knows from slurmctld: runs end before the next one begins.
 */
static bool path_of_run(spank_t sp, const struct settings *s, char *path)
{
	uint32_t job = number(sp, S_JOB_ID), restart = number(sp, S_SLURM_RESTART_COUNT);
	char rest[64];

	if (!below_state(s, "fabric/jobs", path, PATH_BYTES))
		return false;
	if (restart == 0)
		restart = last_run(path, job);
	snprintf(rest, sizeof(rest), "fabric/jobs/%" PRIu32 ".%" PRIu32, job, restart);
	return below_state(s, rest, path, PATH_BYTES);
}

static int refuse_length(void)
{
	return refuse(ERROR_MARK "node %s: state= in plugstack.conf is too long", node_name());
}

/* Sets the variables of the job's file, whose directory is path then. */
static enum found give(spank_t sp, const struct settings *s, char *path)
{
	enum found found = path_of_run(sp, s, path) ? load(path) : WRONG;

	return found == GIVEN ? apply(sp) : found;
}

/* ---- the first task ---- */

/* Makes the directories of a path that ends with a file's name. */
static void make_directories(char *path)
{
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(path, 0711);
		*slash = '/';
	}
}

/* Waits until no other task of the job sets up the job's tags. Returns -1 with errno. */
static int lock(char *path)
{
	int fd, rc = 0;

	make_directories(path);
	fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	while (fd >= 0 && (rc = flock(fd, LOCK_EX)) < 0 && errno == EINTR)
		;
	if (fd >= 0 && rc < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/*
 * The lock file names the step in which the agent has failed. The step's other tasks on
 * the node then fail without a try of their own: there may be a hundred.
 */
static bool has_failed(int fd, uint32_t step)
{
	char failed[16] = "", own[16];
	ssize_t n = pread(fd, failed, sizeof(failed) - 1, 0);

	failed[n < 0 ? 0 : n] = '\0';
	snprintf(own, sizeof(own), "%" PRIu32 "\n", step);
	return !strcmp(failed, own);
}

static int fail(int fd, uint32_t step)
{
	char own[16];
	int n = snprintf(own, sizeof(own), "%" PRIu32 "\n", step);

	if (ftruncate(fd, 0) < 0 || pwrite(fd, own, (size_t)n, 0) != n)
		return -1; /* each task tries then */
	return -1;
}

static int run_agent(spank_t sp, const struct settings *s)
{
	char *argv[] = {(char *)s->agent, "fabric", "up", "--config", (char *)s->config, NULL};
	struct agent agent = {.node = node_name(), .argv = argv, .seconds = UP_SECONDS, .error = show_node_error, .say = show};

	agent.envp = begin_environment();
	add_job(sp);
	return await_placement(sp) < 0 ? -1 : agent_run(&agent);
}

/* Refuses what the file cannot be. */
static int conclude(enum found found, const char *path)
{
	if (found == GIVEN)
		return 0;
	if (found == NOTHING)
		return refuse(ERROR_MARK "node %s: %s has no file of this boot with the variables about the job's tags: "
			      "state= in plugstack.conf must name the directory that paths.state names in slurmv.toml",
			      node_name(), path);
	return refuse(ERROR_MARK "node %s: %s/environment is not a whole file of root's with the variables about "
		      "the job's tags: remove it, and the next step makes it anew", node_name(), path);
}

static int set_up(spank_t sp, const struct settings *s, int lock_fd)
{
	char path[PATH_BYTES];
	uint32_t step = number(sp, S_JOB_STEPID);
	enum found found = give(sp, s, path);

	if (found != NOTHING)
		return conclude(found, path);
	if (has_failed(lock_fd, step))
		return -1;
	if (run_agent(sp, s) < 0 || conclude(give(sp, s, path), path) < 0)
		return fail(lock_fd, step);
	return 0;
}

/* The lock is the job's, not its run's: the agent removes it at the job's end. */
static int set_up_locked(spank_t sp, const struct settings *s)
{
	char path[PATH_BYTES], rest[64];
	int fd, rc;

	snprintf(rest, sizeof(rest), "fabric/locks/%" PRIu32, number(sp, S_JOB_ID));
	if (!below_state(s, rest, path, sizeof(path)))
		return refuse_length();
	fd = lock(path);
	if (fd < 0)
		return refuse(ERROR_MARK "node %s: lock %s: %s", node_name(), path, strerror(errno));
	rc = set_up(sp, s, fd);
	close(fd);
	return rc;
}

/*
 * Whether the job was submitted with tags, by the step's environment. A step from outside of
 * the job (srun --jobid) has no such variable, but finds the file that the job's own tasks
 * have got. A user who sets it in a job without tags gets a step that fails.
 */
bool wants_tags(spank_t sp)
{
	char wish[2];

	return spank_getenv(sp, "SLURM_SPANK_SLURMV_FABRIC", wish, sizeof(wish)) != ESPANK_ENV_NOEXIST;
}

/*
 * Clears what a user has set in the own shell. A job without tags needs nothing from here, so
 * it does not fail by a file that is not right.
 */
static int give_none(spank_t sp, const struct settings *s)
{
	char path[PATH_BYTES];

	if (below_state(s, "fabric", path, sizeof(path)) && load(path) == GIVEN)
		apply(sp);
	return 0;
}

int give_tags(spank_t sp, const struct settings *s)
{
	char path[PATH_BYTES];
	bool wanted = wants_tags(sp);
	enum found found;

	if (s->wrong)
		return wanted ? refuse_settings(s) : 0;
	if (!path_of_run(sp, s, path))
		return refuse_length();
	found = give(sp, s, path);
	if (found == NOTHING)
		return wanted ? set_up_locked(sp, s) : give_none(sp, s);
	return conclude(found, path);
}
