/*
 * Two things that MPICH over UCX needs in these guests. The library is loaded before
 * libmpich.
 *
 * It closes no connection one by one. In MPI_Finalize each rank does that, and it takes an
 * answer from the other side. MPICH 4.0 then waits in a PMI barrier, where it answers nobody
 * any more, so a rank that closes late waits for ever. From MPICH 4.1.2 on (pmodels/mpich
 * pull request 6596) the barrier comes first, and a rank that is done ends, so one that
 * closes late fails with "Connection reset by remote peer". Late is a few milliseconds: in
 * emulated VMs that is the rule. The end of the worker closes all connections, and with
 * either order a rank has passed the barrier then, so nobody waits for its messages any more.
 * What a rank has not sent yet goes out meanwhile, by a thread.
 *
 * That thread and MPICH do not ask UCX for news at the same time: from then on
 * ucp_worker_progress takes a lock. MPICH waits for the barrier then and asks UCX for nothing else.
 *
 * It lets a rank that waits sleep, if the guest is emulated. MPICH asks UCX for
 * news without a pause. Many emulated VMs share the host's few processors, so the
 * ranks that wait would take them from those that compute, for which they wait.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t ucx = PTHREAD_MUTEX_INITIALIZER;
static pthread_t answerer;
static atomic_bool answering;
static void *worker;

static void *next(void **symbol, const char *name)
{
	if (!*symbol)
		*symbol = dlsym(RTLD_NEXT, name);
	return *symbol;
}

/* CALL(name, arguments): the function of that name in libucp. */
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
	bool lock = atomic_load_explicit(&answering, memory_order_relaxed);
	unsigned int news;

	if (lock)
		pthread_mutex_lock(&ucx);
	news = CALL(ucp_worker_progress, w);
	if (lock)
		pthread_mutex_unlock(&ucx);
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

static void *answer(void *unused)
{
	while (atomic_load(&answering)) {
		ucp_worker_progress(worker);
		nanosleep(&nap, NULL);
	}
	return unused;
}

/* No request to wait for. */
void *ucp_disconnect_nb(void *endpoint)
{
	(void)endpoint;
	if (!atomic_exchange(&answering, true) && pthread_create(&answerer, NULL, answer, NULL) != 0)
		atomic_store(&answering, false);
	return NULL;
}

void ucp_worker_destroy(void *w)
{
	if (atomic_exchange(&answering, false))
		pthread_join(answerer, NULL);
	CALL(ucp_worker_destroy, w);
}
