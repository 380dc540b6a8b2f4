//go:build ignore

/* See agent.h. The line above keeps this file out of the Go library. */

#define _GNU_SOURCE

#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if !__GLIBC_PREREQ(2, 34)
#include <dirent.h>
#endif

#ifndef GRACE_MS
#define GRACE_MS 15000 /* from SIGTERM to SIGKILL: half of Slurm's KillWait */
#endif

enum {
	STATUS_FD = 3,
	PRIVATE_FD = 10, /* the caller's descriptors stay above the agent's */
	LINE_MAX_BYTES = 8192,
};

struct run {
	const struct agent *agent;
	pid_t pid;
	int status;       /* the caller's end of the pipe */
	int terms;        /* signalfd that reads SIGTERM, or -1 */
	int64_t deadline; /* in ms; INT64_MAX is never */
	bool ready, told, ending, cancelled;
	size_t used;
	char line[LINE_MAX_BYTES];
};

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* How long poll may wait, in ms; -1 is for ever. */
static int remaining(const struct run *r)
{
	int64_t left = r->deadline - now_ms();

	if (r->deadline == INT64_MAX)
		return -1;
	if (left < 0)
		return 0;
	return left > INT32_MAX ? INT32_MAX : (int)left;
}

static void tell(struct run *r, const char *text)
{
	r->told = true;
	r->agent->error(text);
}

static const char *after(const char *text, const char *word)
{
	size_t n = strlen(word);

	return strncmp(text, word, n) ? NULL : text + n;
}

static void take_line(struct run *r)
{
	const char *text;

	r->line[r->used] = '\0';
	r->used = 0;
	if (!strcmp(r->line, "ready"))
		r->ready = true;
	else if ((text = after(r->line, "error ")))
		tell(r, text);
	else if ((text = after(r->line, "say ")))
		r->agent->say(text);
}

static void take_byte(struct run *r, char c)
{
	if (c == '\n')
		take_line(r);
	else if (r->used < sizeof(r->line) - 1)
		r->line[r->used++] = c;
}

/* Returns false at the end of the file. */
static bool take_input(struct run *r)
{
	char bytes[4096];
	ssize_t n = read(r->status, bytes, sizeof(bytes));

	for (ssize_t i = 0; i < n; i++)
		take_byte(r, bytes[i]);
	if (n == 0 && r->used)
		take_line(r);
	return n > 0 || (n < 0 && errno == EINTR);
}

/* Asks the agent to end. The agent then still has some time to say why. */
static void ask_to_end(struct run *r)
{
	r->ending = true;
	r->deadline = now_ms() + GRACE_MS;
	kill(r->pid, SIGTERM);
}

static void cancel(struct run *r)
{
	struct signalfd_siginfo term;

	r->cancelled = read(r->terms, &term, sizeof(term)) == sizeof(term);
	ask_to_end(r);
}

static bool sigterm_pending(const struct run *r)
{
	struct pollfd term = {.fd = r->terms, .events = POLLIN};

	return !r->cancelled && poll(&term, 1, 0) > 0;
}

/* Listens until the agent is ready, has closed its pipe or is out of time. */
static void follow(struct run *r)
{
	while (!(r->ready && !r->ending && !sigterm_pending(r))) {
		struct pollfd fds[] = {
			{.fd = r->status, .events = POLLIN},
			{.fd = r->cancelled ? -1 : r->terms, .events = POLLIN},
		};
		int n = poll(fds, 2, remaining(r));

		if (n < 0 && errno != EINTR)
			return;
		if (n == 0 && r->ending)
			return;
		if (n == 0)
			ask_to_end(r);
		if (n > 0 && fds[1].revents)
			cancel(r);
		if (n > 0 && fds[0].revents && !take_input(r))
			return;
	}
}

/*
 * Waits for the end of the agent, which may still be giving things back. Never waits for
 * ever: it leaves a process alone that survives SIGKILL. Returns the agent's wait
 * status, or -1 if it is unknown.
 */
static int reap(struct run *r)
{
	const struct timespec nap = {.tv_nsec = 5000000};
	int64_t until = r->ending ? r->deadline : now_ms() + GRACE_MS;
	bool killed = false;
	int status;
	pid_t pid;

	while ((pid = waitpid(r->pid, &status, WNOHANG)) == 0 || (pid < 0 && errno == EINTR)) {
		if (now_ms() >= until && killed)
			return -1;
		if (now_ms() >= until) {
			kill(r->pid, SIGKILL);
			killed = true;
			until = now_ms() + GRACE_MS;
		}
		nanosleep(&nap, NULL);
	}
	return pid < 0 ? -1 : status;
}

static void tell_cause(struct run *r, const char *cause)
{
	char *const *argv = r->agent->argv;
	char text[1024];

	snprintf(text, sizeof(text), "node %s: %s %s: %s", r->agent->node, argv[0], argv[1], cause);
	tell(r, text);
}

/* Reports how an agent ended that did not report an error itself. */
static void tell_end(struct run *r, int status)
{
	char cause[80] = "its end is unknown";

	if (status != -1 && WIFSIGNALED(status))
		snprintf(cause, sizeof(cause), "killed by signal %d", WTERMSIG(status));
	else if (status != -1)
		snprintf(cause, sizeof(cause), "exit status %d, and no reason given", WEXITSTATUS(status));
	tell_cause(r, cause);
}

static int outcome(struct run *r)
{
	bool wanted = r->ready && !r->ending;
	int status;

	if (wanted && r->agent->stays)
		return 0;
	status = reap(r);
	if (!r->agent->stays && status == 0 && !r->told)
		return 0;
	if (!r->told && !r->cancelled)
		tell_end(r, status);
	return -1;
}

#if __GLIBC_PREREQ(2, 34)
static void close_rest(posix_spawn_file_actions_t *actions)
{
	posix_spawn_file_actions_addclosefrom_np(actions, STATUS_FD + 1);
	posix_spawn_file_actions_addchdir_np(actions, "/");
}
#else
/* A descriptor that another thread of Slurm opens after the listing is close-on-exec. */
static void close_rest(posix_spawn_file_actions_t *actions)
{
	DIR *fds = opendir("/proc/self/fd");

	for (struct dirent *e; fds && (e = readdir(fds));)
		if (atoi(e->d_name) > STATUS_FD)
			posix_spawn_file_actions_addclose(actions, atoi(e->d_name));
	if (fds)
		closedir(fds);
}
#endif

static void plan_descriptors(posix_spawn_file_actions_t *actions, int status)
{
	posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDWR, 0);
	posix_spawn_file_actions_adddup2(actions, STDIN_FILENO, STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(actions, STDIN_FILENO, STDERR_FILENO);
	posix_spawn_file_actions_adddup2(actions, status, STATUS_FD);
	close_rest(actions);
}

static void plan_signals(posix_spawnattr_t *attributes)
{
	sigset_t signals;

	sigemptyset(&signals);
	posix_spawnattr_setsigmask(attributes, &signals);
	sigfillset(&signals);
	posix_spawnattr_setsigdefault(attributes, &signals);
	posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
						     POSIX_SPAWN_SETSIGDEF);
}

/* Returns 0 or an errno. status is the agent's end of the pipe. */
static int spawn(struct run *r, int status)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	int err;

	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attributes);
	plan_descriptors(&actions, status);
	plan_signals(&attributes);
	err = posix_spawn(&r->pid, r->agent->argv[0], &actions, &attributes, r->agent->argv,
			  r->agent->envp);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return err;
}

/* Returns 0 or an errno. */
static int start(struct run *r)
{
	int ends[2], theirs, err;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return errno;
	r->status = ends[0];
	theirs = fcntl(ends[1], F_DUPFD_CLOEXEC, PRIVATE_FD);
	err = theirs < 0 ? errno : spawn(r, theirs);
	close(ends[1]);
	if (theirs >= 0)
		close(theirs);
	if (err)
		close(r->status);
	return err;
}

static int start_and_follow(struct run *r)
{
	int err = start(r), rc;

	if (err) {
		tell_cause(r, strerror(err));
		return -1;
	}
	if (r->agent->seconds)
		r->deadline = now_ms() + r->agent->seconds * INT64_C(1000);
	follow(r);
	rc = outcome(r);
	close(r->status);
	return rc;
}

/*
 * slurmstepd blocks SIGTERM in a task until the task executes its program, so a
 * cancelled step would notice nothing before SIGKILL. SIGTERM is read from a signalfd
 * instead. The default action is set only because the kernel throws away a signal that
 * is ignored.
 */
static int run_cancellable(struct run *r)
{
	struct sigaction fresh = {.sa_handler = SIG_DFL}, before;
	sigset_t term, mask;
	int rc;

	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigprocmask(SIG_BLOCK, &term, &mask);
	sigaction(SIGTERM, &fresh, &before);
	r->terms = signalfd(-1, &term, SFD_CLOEXEC | SFD_NONBLOCK);
	rc = start_and_follow(r);
	if (r->terms >= 0)
		close(r->terms);
	sigaction(SIGTERM, &before, NULL);
	sigprocmask(SIG_SETMASK, &mask, NULL);
	return rc;
}

int agent_run(const struct agent *agent)
{
	struct run r = {.agent = agent, .terms = -1, .deadline = INT64_MAX};

	return agent->stays ? run_cancellable(&r) : start_and_follow(&r);
}
