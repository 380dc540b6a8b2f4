/*
 * Stands for the commands and daemons of Slurm: loads the plugin, calls its hooks in
 * the order given on the command line and prints what the plugin does.
 *
 *     host PLUGIN CONTEXT ACTION...
 *
 *     arg:TEXT       an argument of the plugin's line in plugstack.conf
 *     --NAME=VALUE   the user gives an option
 *     HOOK           slurm_spank_HOOK is called, its value is printed
 *     environ        the variables that Slurm's commands pass on are printed, and some about tags
 *     signals        the blocked and ignored signals are printed
 *
 * Variables of this program with the prefix JOB: are the job's environment.
 */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/spank.h>

static struct spank_option taken[32];
static int taken_count;
static spank_context_t context;

static void print(const char *kind, const char *format, va_list args)
{
	printf("%s: ", kind);
	vprintf(format, args);
	printf("\n");
}

void slurm_error(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	print("error", format, args);
	va_end(args);
}

void slurm_spank_log(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	print("log", format, args);
	va_end(args);
}

spank_context_t spank_context(void)
{
	return context;
}

spank_err_t spank_option_register(spank_t sp, struct spank_option *option)
{
	(void)sp;
	if (taken_count == sizeof(taken) / sizeof(*taken))
		return ESPANK_ERROR;
	taken[taken_count++] = *option;
	return ESPANK_SUCCESS;
}

spank_err_t spank_job_control_setenv(spank_t sp, const char *name, const char *value, int overwrite)
{
	(void)sp, (void)overwrite;
	printf("control: %s=%s\n", name, value);
	return ESPANK_SUCCESS;
}

spank_err_t spank_getenv(spank_t sp, const char *name, char *text, int size)
{
	char prefixed[256];
	const char *value;

	(void)sp;
	snprintf(prefixed, sizeof(prefixed), "JOB:%s", name);
	if (!(value = getenv(prefixed)))
		return ESPANK_ENV_NOEXIST;
	return snprintf(text, size, "%s", value) < size ? ESPANK_SUCCESS : ESPANK_NOSPACE;
}

spank_err_t spank_setenv(spank_t sp, const char *name, const char *value, int overwrite)
{
	char before[2];

	if (!overwrite && spank_getenv(sp, name, before, sizeof(before)) != ESPANK_ENV_NOEXIST)
		return ESPANK_ENV_EXISTS;
	printf("setenv: %s=%s\n", name, value);
	return ESPANK_SUCCESS;
}

spank_err_t spank_unsetenv(spank_t sp, const char *name)
{
	(void)sp;
	printf("unsetenv: %s\n", name);
	return ESPANK_SUCCESS;
}

/* The program of the step and its arguments. */
static void get_argv(va_list args)
{
	static char text[4096], *argv[8];
	int argc = 0;

	snprintf(text, sizeof(text), "%s", getenv("HOST_PROGRAM") ? getenv("HOST_PROGRAM") : "hostname");
	for (char *word = strtok(text, " "); word && argc < 7; word = strtok(NULL, " "))
		argv[argc++] = word;
	argv[argc] = NULL;
	*va_arg(args, int *) = argc;
	*va_arg(args, char ***) = argv;
}

static int from_environ(const char *name, int otherwise)
{
	return getenv(name) ? atoi(getenv(name)) : otherwise;
}

spank_err_t spank_get_item(spank_t sp, spank_item_t item, ...)
{
	va_list args;

	(void)sp;
	va_start(args, item);
	switch (item) {
	case S_JOB_ID: *va_arg(args, uint32_t *) = 4217; break;
	case S_JOB_STEPID: *va_arg(args, uint32_t *) = from_environ("HOST_STEP", 3); break;
	case S_JOB_UID: *va_arg(args, uid_t *) = 1000; break;
	case S_JOB_GID: *va_arg(args, gid_t *) = 100; break;
	case S_JOB_NNODES: *va_arg(args, uint32_t *) = 2; break;
	case S_JOB_NODEID: *va_arg(args, uint32_t *) = 1; break;
	case S_SLURM_RESTART_COUNT: *va_arg(args, uint32_t *) = from_environ("HOST_RESTART", 5); break;
	case S_JOB_NCPUS: *va_arg(args, uint16_t *) = 8; break;
	case S_JOB_ALLOC_MEM: *va_arg(args, uint64_t *) = 4096; break;
	case S_JOB_LOCAL_TASK_COUNT: *va_arg(args, uint32_t *) = 8; break;
	case S_TASK_ID: *va_arg(args, int *) = from_environ("HOST_TASK", 0); break;
	case S_JOB_ARGV: get_argv(args); break;
	default: va_end(args); return ESPANK_BAD_ARG;
	}
	va_end(args);
	return ESPANK_SUCCESS;
}

/* "--name=value" on the command line of sbatch. */
static void give_option(const char *text)
{
	size_t n = strcspn(text, "=");

	for (int i = 0; i < taken_count; i++)
		if (strlen(taken[i].name) == n && !strncmp(taken[i].name, text, n)) {
			taken[i].cb(taken[i].val, text + n + 1, 0);
			return;
		}
	printf("no option: %s\n", text);
}

static void print_environ(void)
{
	for (char **v = environ; *v; v++)
		if (strstr(*v, "SLURM_SPANK") || strstr(*v, "SLURM_HET") || strstr(*v, "SLINGSHOT") || strstr(*v, "UCX"))
			printf("environ: %s\n", *v);
}

static void call(void *plugin, const char *hook, int ac, char **av)
{
	char name[128];
	spank_f *function;

	snprintf(name, sizeof(name), "slurm_spank_%s", hook);
	if (!(function = (spank_f *)dlsym(plugin, name)))
		printf("%s: no such hook\n", hook);
	else
		printf("%s: %d\n", hook, function(NULL, ac, av));
}

static void print_signals(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	char line[256];

	while (status && fgets(line, sizeof(line), status))
		if (!strncmp(line, "SigBlk", 6) || !strncmp(line, "SigIgn", 6))
			printf("%s", line);
	if (status)
		fclose(status);
}

/* Slurm blocks and ignores signals, and has a descriptor open that agents must not get. */
static void resemble_slurm(void)
{
	sigset_t blocked;

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGTERM);
	sigaddset(&blocked, SIGCHLD);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	signal(SIGPIPE, SIG_IGN);
	dup2(open("/dev/null", O_RDONLY), 7);
}

int main(int argc, char **argv)
{
	void *plugin = argc > 2 ? dlopen(argv[1], RTLD_LAZY) : NULL;
	char *av[8];
	int ac = 0;

	setvbuf(stdout, NULL, _IONBF, 0);
	if (!plugin)
		return printf("%s\n", dlerror()), 1;
	context = atoi(argv[2]);
	resemble_slurm();
	for (char **a = argv + 3; *a; a++) {
		if (!strncmp(*a, "arg:", 4) && ac < 8)
			av[ac++] = *a + 4;
		else if (!strncmp(*a, "--", 2))
			give_option(*a + 2);
		else if (!strcmp(*a, "environ"))
			print_environ();
		else if (!strcmp(*a, "signals"))
			print_signals();
		else
			call(plugin, *a, ac, av);
	}
	return 0;
}
