/*
 * Three things that MPICH over UCX needs in these guests. The library is loaded before
 * libmpich.
 *
 * A rank that is done answers the others. MPI_Finalize waits in a PMI barrier, in read(2), and answers
 * nobody meanwhile. But UCX connects two ranks only when they have something for each other, and a
 * fence of a window connects a rank to all others. From MPICH 4.1.2 on (pmodels/mpich pull request
 * 6596), the barrier is the first thing in MPI_Finalize, and the others would wait for ever.
 *
 * It closes no connection one by one. In MPI_Finalize each rank does that, and it takes an
 * answer from the other side. In MPICH 4.0 the barrier comes after that. From MPICH 4.1.2 on, a
 * rank that is done ends, so one that closes late fails with "Connection reset by remote peer".
 * Late is a few milliseconds: in emulated VMs that is the rule. The end of the worker closes all
 * connections, and with either order a rank has passed the barrier then, so nobody waits for its
 * messages any more.
 *
 * It lets a rank that waits sleep, if the guest is emulated. MPICH asks UCX for
 * news without a pause. Many emulated VMs share the host's few processors, so the
 * ranks that wait would take them from those that compute, for which they wait.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void *worker;
static bool finalizing;

/* MPI may be loaded for another library alone, as Python does, and then does not come next. */
static void *next(void **symbol, const char *name)
{
	static const char *const libraries[] = { "libmpich.so.12", "libmpi.so.40" };

	if (!*symbol)
		*symbol = dlsym(RTLD_NEXT, name);
	for (int i = 0; !*symbol && i < 2; i++) {
		void *library = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
		if (library)
			*symbol = dlsym(library, name);
	}
	return *symbol;
}

/* CALL(name, arguments): the function of that name behind this library. */
#define CALL(name, ...) ({ \
	static void *symbol; \
	((__typeof__(&name))next(&symbol, #name))(__VA_ARGS__); \
})

static const struct timespec nap = { .tv_nsec = 1000000 };

/* The leaf in which a hypervisor names itself, as KVM's documentation of CPUID has it. */
static bool emulated(void)
{
	unsigned int leaf, name[3];

	__cpuid(0x40000000, leaf, name[0], name[1], name[2]);
	return !memcmp(name, "TCGTCGTCGTCG", sizeof(name));
}

/*
 * Sleeps from the thousandth look without news on: some milliseconds after the last
 * message, so that an exchange of messages never sleeps.
 */
static void rest(unsigned int news)
{
	static _Thread_local unsigned int looks;
	static _Thread_local bool known, pause;

	looks = news ? 0 : looks + 1;
	if (looks < 1000)
		return;
	if (!known) {
		pause = emulated();
		known = true;
	}
	if (pause)
		nanosleep(&nap, NULL);
}

unsigned ucp_worker_progress(void *w)
{
	unsigned int news = CALL(ucp_worker_progress, w);

	rest(news);
	return news;
}

int ucp_worker_create(void *context, const void *params, void **created)
{
	int status = CALL(ucp_worker_create, context, params, created);
	if (status == 0)
		worker = *created;
	return status;
}

/* No request to wait for. */
void *ucp_disconnect_nb(void *endpoint)
{
	(void)endpoint;
	return NULL;
}

void ucp_worker_destroy(void *w)
{
	finalizing = false;
	CALL(ucp_worker_destroy, w);
}

int MPI_Finalize(void)
{
	finalizing = worker != NULL;
	return CALL(MPI_Finalize);
}

/* The descriptor over which MPICH speaks PMI. */
static int pmi(void)
{
	const char *fd = getenv("PMI_FD");

	return fd ? atoi(fd) : -1;
}

/* The thread that waits for PMI is the one that uses UCX, and is not in it now. */
ssize_t read(int fd, void *to, size_t n)
{
	struct pollfd reply = { .fd = fd, .events = POLLIN };
	unsigned int news = 0;

	while (finalizing && fd == pmi() && poll(&reply, 1, news ? 0 : 1) == 0)
		news = ucp_worker_progress(worker);
	return CALL(read, fd, to, n);
}
