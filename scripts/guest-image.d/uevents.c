/*
 * uevents PROGRAM runs PROGRAM for each event of the kernel that needs an answer: a device
 * came for which there may be a driver, or a port of the host's that wants a name. What the
 * event says is in the environment.
 *
 * busybox has a program that starts another for every event. Each 9p mount makes some, and
 * under emulation a process that starts takes longer than the mount.
 *
 * The events: Linux, lib/kobject_uevent.c; a header, then KEY=VALUE strings, each with its
 * zero.
 */
#define _GNU_SOURCE
#include <linux/netlink.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* listen_to_kernel returns a socket that the kernel's events come from. */
static int listen_to_kernel(void)
{
	struct sockaddr_nl events = {.nl_family = AF_NETLINK, .nl_groups = 1};
	int size = 1 << 20; /* some hundred devices may come at once */
	int s = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT);

	if (s < 0 || bind(s, (struct sockaddr *)&events, sizeof(events)) < 0) {
		perror("uevents: listen to the kernel");
		exit(1);
	}
	setsockopt(s, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
	return s;
}

/* concerns tells whether the event needs an answer. */
static bool concerns(const char *event, const char *end)
{
	bool came = false, wants = false;

	for (; event < end; event += strlen(event) + 1) {
		came |= !strcmp(event, "ACTION=add") || !strcmp(event, "ACTION=change");
		wants |= !strncmp(event, "MODALIAS=", 9) || !strcmp(event, "SUBSYSTEM=virtio-ports");
	}
	return came && wants;
}

/* answer runs the program and waits for it: events are answered in their order. */
static void answer(char *program, char *event, char *end)
{
	char *argv[] = {program, NULL};
	pid_t child = fork();

	if (child == 0) {
		for (; event < end; event += strlen(event) + 1)
			if (strchr(event, '='))
				putenv(event);
		execv(program, argv);
		perror(program);
		_exit(127);
	}
	if (child > 0)
		waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
	static char event[8192 + 1]; /* the kernel's are at most 2 KiB; the last byte stays zero */
	struct sockaddr_nl from;
	int s;

	if (argc != 2) {
		fprintf(stderr, "usage: uevents PROGRAM\n");
		return 2;
	}
	s = listen_to_kernel();
	for (;;) {
		socklen_t size = sizeof(from);
		ssize_t n = recvfrom(s, event, sizeof(event) - 1, 0, (struct sockaddr *)&from, &size);

		if (n <= 0 || from.nl_pid != 0) /* some were lost, or it is not the kernel */
			continue;
		event[n] = '\0';
		if (concerns(event, event + n))
			answer(argv[1], event, event + n);
	}
}
