//go:build ignore

#define _GNU_SOURCE

#include "pmi.h"
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* What the server sends to the program: an answer, whole when the pipe ends. */
enum { READY = '+', FAILED = '-' };

/* The server leaves the program's process group, so that signals to the program do not end it;
 * the guest agent ends it with the program's cgroup. It keeps standard error, to say why an MPI
 * call failed. */
static void detach(void)
{
	int null = open("/dev/null", O_RDWR);

	setsid();
	dup2(null, 0);
	dup2(null, 1);
	close(null);
}

static void serve(int to_program)
{
	FILE *to = fdopen(to_program, "w");
	char *why, **env;

	detach();
	pmi_init();
	env = server_begin(&why);
	fputc(env ? READY : FAILED, to);
	for (char **e = env; e && *e; e++)
		fwrite(*e, 1, strlen(*e) + 1, to);
	if (!env)
		fprintf(to, "slurm-v: --mpi=pmix: %s\n", why);
	fclose(to);
	if (env)
		server_run();
	_exit(0);
}

/* The server is no child of the program, which need not expect one. */
static void fork_server(int to_program)
{
	pid_t middle = fork();

	if (middle == 0) {
		if (fork() == 0)
			serve(to_program);
		_exit(0);
	}
	while (middle > 0 && waitpid(middle, NULL, 0) < 0 && errno == EINTR)
		;
}

static void read_environment(FILE *from)
{
	char *entry = NULL;
	size_t size = 0;

	while (getdelim(&entry, &size, 0, from) > 0) {
		putenv(entry);
		entry = NULL;
		size = 0;
	}
	/* The server talks to PMI; a program that tried would hear its answers. */
	unsetenv("PMI_FD");
	unsetenv("PMI_RANK");
	unsetenv("PMI_SIZE");
}

static void complain(FILE *from)
{
	char *sentence = NULL;
	size_t size = 0;

	if (getdelim(&sentence, &size, 0, from) > 0)
		dprintf(2, "%s", sentence); /* at once: other ranks write there, too */
	exit(1);
}

/* slurmv-pmix PATH NAME ARGUMENT…: becomes the program at PATH, under that name. */
int main(int argc, char **argv)
{
	int answer[2];
	FILE *from;

	if (argc < 3 || pipe2(answer, O_CLOEXEC)) {
		fprintf(stderr, "slurm-v: slurmv-pmix PATH NAME ARGUMENT…: %s\n", argc < 3 ? "too few words" : strerror(errno));
		return 1;
	}
	fork_server(answer[1]);
	close(answer[1]);
	from = fdopen(answer[0], "r");
	if (fgetc(from) != READY)
		complain(from);
	read_environment(from);
	fclose(from);
	if (getenv("PMI_FD"))
		close(atoi(getenv("PMI_FD")));
	execv(argv[1], argv + 2);
	fprintf(stderr, "slurm-v: run %s: %s\n", argv[1], strerror(errno));
	return errno == ENOENT ? 127 : 126;
}
