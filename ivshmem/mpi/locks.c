//go:build ignore

/*
 * Mutexes, semaphores, condition variables, barriers and read-write locks in the region.
 *
 * The C library's sleep in the kernel, by an address that is another page in each VM and,
 * as memory of a device, none at all. They also know a thread by its number, which a thread of
 * another VM may have, too. So those that are in a mapped file of the region are kept here,
 * in the same bytes and with the same promises. Who waits asks again and again, and lets
 * others run in between.
 */
#define _GNU_SOURCE

#include "files.h"
#include "real.h"
#include "settings.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

/* ---- time ---- */

/* Whether the time is over. NULL is never. */
static bool over(clockid_t clock, const struct timespec *until)
{
	struct timespec now;

	if (!until)
		return false;
	clock_gettime(clock, &now);
	return now.tv_sec > until->tv_sec || (now.tv_sec == until->tv_sec && now.tv_nsec >= until->tv_nsec);
}

/* Lets others run. Returns ETIMEDOUT when the time is over. */
static int rest(clockid_t clock, const struct timespec *until)
{
	if (over(clock, until))
		return ETIMEDOUT;
	sched_yield();
	return 0;
}

/* ---- mutexes ---- */

/* Zero is PTHREAD_MUTEX_INITIALIZER, and kind is where glibc's static initialisers of other
 * kinds have it. */
struct mutex {
	_Atomic uint64_t owner; /* 0: free */
	uint32_t depth;         /* of a recursive one, above the first */
	uint32_t state;         /* of a robust one */
	int32_t kind;           /* PTHREAD_MUTEX_NORMAL ... */
	uint32_t robust;
};
_Static_assert(sizeof(struct mutex) <= sizeof(pthread_mutex_t), "a mutex has 40 bytes");
_Static_assert(offsetof(struct mutex, kind) == offsetof(pthread_mutex_t, __data.__kind), "as in glibc");

enum { CONSISTENT, INCONSISTENT, LOST };

/* A thread of all VMs of the job on this node. Thread numbers are below 2^22. */
static uint64_t me(void) { return (uint64_t)(settings()->vm + 1) << 32 | (uint32_t)raw(SYS_gettid); }

/* Whether the thread was one of this VM and has ended. Of other VMs' threads nothing is known:
 * when the rank of one is killed, its relay makes Slurm end the run (vmstep/relay, Leave). */
static bool dead(uint64_t thread)
{
	return thread >> 32 == settings()->vm + 1 && raw(SYS_tkill, (int)(uint32_t)thread, 0) < 0 && errno == ESRCH;
}

static int own_again(struct mutex *m)
{
	if (m->kind == PTHREAD_MUTEX_RECURSIVE)
		return m->depth++, 0;
	return m->kind == PTHREAD_MUTEX_ERRORCHECK ? EDEADLK : EBUSY;
}

static int inherit(struct mutex *m, uint64_t owner)
{
	if (!m->robust || !dead(owner) || !atomic_compare_exchange_strong(&m->owner, &owner, me()))
		return EBUSY;
	m->depth = 0;
	m->state = INCONSISTENT;
	return EOWNERDEAD;
}

static int try_mutex(struct mutex *m)
{
	uint64_t owner = 0;

	if (m->state == LOST)
		return ENOTRECOVERABLE;
	if (atomic_compare_exchange_strong(&m->owner, &owner, me()))
		return 0;
	return owner == me() ? own_again(m) : inherit(m, owner);
}

static int lock_mutex(struct mutex *m, clockid_t clock, const struct timespec *until)
{
	int err;

	while ((err = try_mutex(m)) == EBUSY && !(err = rest(clock, until)))
		;
	return err;
}

static int unlock_mutex(struct mutex *m)
{
	if (m->owner != me() && (m->kind != PTHREAD_MUTEX_NORMAL || m->robust))
		return EPERM;
	if (m->depth)
		return m->depth--, 0;
	if (m->state == INCONSISTENT)
		m->state = LOST;
	atomic_store(&m->owner, 0);
	return 0;
}

static int make_mutex(struct mutex *m, const pthread_mutexattr_t *attributes)
{
	int robust = 0;

	memset(m, 0, sizeof(*m));
	if (attributes) {
		REAL(pthread_mutexattr_gettype)(attributes, &m->kind);
		REAL(pthread_mutexattr_getrobust)(attributes, &robust);
		m->robust = robust == PTHREAD_MUTEX_ROBUST;
	}
	return 0;
}

static int mend_mutex(struct mutex *m)
{
	if (m->state != INCONSISTENT)
		return EINVAL;
	m->state = CONSISTENT;
	return 0;
}

/* Some are not in the glibc of all images, or in a library of glibc's that a program need not have. A program that looks for one
 * finds ours. */
#define NEW_HOOK(name, parameters, object, ours, missing, ...)            \
	int name parameters;                                              \
	int name parameters                                               \
	{                                                                 \
		if (files_mapped(object))                                 \
			return ours;                                      \
		return REAL(name) ? REAL(name)(__VA_ARGS__) : missing;    \
	}
#define HOOK(name, parameters, object, ours, ...) NEW_HOOK(name, parameters, object, ours, ENOSYS, __VA_ARGS__)
#define MUTEX ((struct mutex *)m)

HOOK(pthread_mutex_init, (pthread_mutex_t *m, const pthread_mutexattr_t *a), m, make_mutex(MUTEX, a), m, a)
HOOK(pthread_mutex_destroy, (pthread_mutex_t *m), m, 0, m)
HOOK(pthread_mutex_lock, (pthread_mutex_t *m), m, lock_mutex(MUTEX, CLOCK_REALTIME, NULL), m)
HOOK(pthread_mutex_trylock, (pthread_mutex_t *m), m, try_mutex(MUTEX), m)
HOOK(pthread_mutex_timedlock, (pthread_mutex_t *m, const struct timespec *t), m, lock_mutex(MUTEX, CLOCK_REALTIME, t), m, t)
NEW_HOOK(pthread_mutex_clocklock, (pthread_mutex_t *m, clockid_t k, const struct timespec *t), m, lock_mutex(MUTEX, k, t), EINVAL, m, k, t)
HOOK(pthread_mutex_unlock, (pthread_mutex_t *m), m, unlock_mutex(MUTEX), m)
HOOK(pthread_mutex_consistent, (pthread_mutex_t *m), m, mend_mutex(MUTEX), m)

/* ---- condition variables ---- */

/* Each waiter takes a ticket, and signals let tickets pass in their order. */
struct condition {
	_Atomic uint64_t tickets, passed;
	clockid_t clock;
};
_Static_assert(sizeof(struct condition) <= sizeof(pthread_cond_t), "a condition variable has 48 bytes");

static int make_condition(struct condition *c, const pthread_condattr_t *attributes)
{
	memset(c, 0, sizeof(*c));
	if (attributes)
		REAL(pthread_condattr_getclock)(attributes, &c->clock);
	return 0;
}

/* Lets all present tickets pass. Another process may have let more of them pass meanwhile. */
static void let_all_pass(struct condition *c)
{
	uint64_t tickets = atomic_load(&c->tickets), passed = atomic_load(&c->passed);

	while (passed < tickets && !atomic_compare_exchange_weak(&c->passed, &passed, tickets))
		;
}

static int wait_condition(struct condition *c, pthread_mutex_t *m, clockid_t clock, const struct timespec *until)
{
	uint64_t ticket = atomic_fetch_add(&c->tickets, 1);
	int err = pthread_mutex_unlock(m), locked;

	while (!err && atomic_load(&c->passed) <= ticket)
		err = rest(clock, until);
	/* A waiter that gives up leaves its ticket behind: the signal that lets it pass wakes
	 * nobody, so it wakes all, who look at what they wait for. */
	if (err == ETIMEDOUT)
		let_all_pass(c);
	locked = pthread_mutex_lock(m);
	return locked ? locked : err;
}

static int signal_condition(struct condition *c)
{
	uint64_t passed = atomic_load(&c->passed);

	while (passed < atomic_load(&c->tickets) && !atomic_compare_exchange_weak(&c->passed, &passed, passed + 1))
		;
	return 0;
}

static int wake_condition(struct condition *c)
{
	let_all_pass(c);
	return 0;
}

#define CONDITION ((struct condition *)c)

HOOK(pthread_cond_init, (pthread_cond_t *c, const pthread_condattr_t *a), c, make_condition(CONDITION, a), c, a)
HOOK(pthread_cond_destroy, (pthread_cond_t *c), c, 0, c)
HOOK(pthread_cond_wait, (pthread_cond_t *c, pthread_mutex_t *m), c, wait_condition(CONDITION, m, CLOCK_REALTIME, NULL), c, m)
HOOK(pthread_cond_timedwait, (pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t), c, wait_condition(CONDITION, m, CONDITION->clock, t), c, m, t)
NEW_HOOK(pthread_cond_clockwait, (pthread_cond_t *c, pthread_mutex_t *m, clockid_t k, const struct timespec *t), c, wait_condition(CONDITION, m, k, t), EINVAL, c, m, k, t)
HOOK(pthread_cond_signal, (pthread_cond_t *c), c, signal_condition(CONDITION), c)
HOOK(pthread_cond_broadcast, (pthread_cond_t *c), c, wake_condition(CONDITION), c)

/* ---- barriers ---- */

struct barrier {
	_Atomic uint32_t rounds, here;
	uint32_t count;
};
_Static_assert(sizeof(struct barrier) <= sizeof(pthread_barrier_t), "a barrier has 32 bytes");

static int make_barrier(struct barrier *b, unsigned count)
{
	memset(b, 0, sizeof(*b));
	b->count = count;
	return count ? 0 : EINVAL;
}

static int wait_barrier(struct barrier *b)
{
	uint32_t round = atomic_load(&b->rounds);

	if (atomic_fetch_add(&b->here, 1) + 1 == b->count) {
		atomic_store(&b->here, 0);
		atomic_fetch_add(&b->rounds, 1);
		return PTHREAD_BARRIER_SERIAL_THREAD;
	}
	while (atomic_load(&b->rounds) == round)
		sched_yield();
	return 0;
}

#define BARRIER ((struct barrier *)b)

HOOK(pthread_barrier_init, (pthread_barrier_t *b, const pthread_barrierattr_t *a, unsigned n), b, make_barrier(BARRIER, n), b, a, n)
HOOK(pthread_barrier_destroy, (pthread_barrier_t *b), b, 0, b)
HOOK(pthread_barrier_wait, (pthread_barrier_t *b), b, wait_barrier(BARRIER), b)

/* ---- read-write locks ---- */

/* Readers, or one writer. A writer that waits goes before new readers. */
struct rwlock {
	_Atomic uint32_t holders; /* WRITER, or how many readers */
	_Atomic uint32_t writers; /* that wait */
};
#define WRITER UINT32_MAX

static int try_read(struct rwlock *l)
{
	uint32_t holders = atomic_load(&l->holders);

	while (holders < WRITER - 1 && !atomic_load(&l->writers))
		if (atomic_compare_exchange_weak(&l->holders, &holders, holders + 1))
			return 0;
	return EBUSY;
}

static int try_write(struct rwlock *l)
{
	uint32_t nobody = 0;

	return atomic_compare_exchange_strong(&l->holders, &nobody, WRITER) ? 0 : EBUSY;
}

static int lock_read(struct rwlock *l, clockid_t clock, const struct timespec *until)
{
	int err;

	while ((err = try_read(l)) && !(err = rest(clock, until)))
		;
	return err;
}

static int lock_write(struct rwlock *l, clockid_t clock, const struct timespec *until)
{
	int err;

	atomic_fetch_add(&l->writers, 1);
	while ((err = try_write(l)) && !(err = rest(clock, until)))
		;
	atomic_fetch_sub(&l->writers, 1);
	return err;
}

static int unlock_rwlock(struct rwlock *l)
{
	if (atomic_load(&l->holders) == WRITER)
		atomic_store(&l->holders, 0);
	else
		atomic_fetch_sub(&l->holders, 1);
	return 0;
}

#define RWLOCK ((struct rwlock *)l)

HOOK(pthread_rwlock_init, (pthread_rwlock_t *l, const pthread_rwlockattr_t *a), l, (memset(l, 0, sizeof(*l)), 0), l, a)
HOOK(pthread_rwlock_destroy, (pthread_rwlock_t *l), l, 0, l)
HOOK(pthread_rwlock_rdlock, (pthread_rwlock_t *l), l, lock_read(RWLOCK, CLOCK_REALTIME, NULL), l)
HOOK(pthread_rwlock_tryrdlock, (pthread_rwlock_t *l), l, try_read(RWLOCK), l)
HOOK(pthread_rwlock_timedrdlock, (pthread_rwlock_t *l, const struct timespec *t), l, lock_read(RWLOCK, CLOCK_REALTIME, t), l, t)
HOOK(pthread_rwlock_wrlock, (pthread_rwlock_t *l), l, lock_write(RWLOCK, CLOCK_REALTIME, NULL), l)
HOOK(pthread_rwlock_trywrlock, (pthread_rwlock_t *l), l, try_write(RWLOCK), l)
HOOK(pthread_rwlock_timedwrlock, (pthread_rwlock_t *l, const struct timespec *t), l, lock_write(RWLOCK, CLOCK_REALTIME, t), l, t)
NEW_HOOK(pthread_rwlock_clockrdlock, (pthread_rwlock_t *l, clockid_t k, const struct timespec *t), l, lock_read(RWLOCK, k, t), EINVAL, l, k, t)
NEW_HOOK(pthread_rwlock_clockwrlock, (pthread_rwlock_t *l, clockid_t k, const struct timespec *t), l, lock_write(RWLOCK, k, t), EINVAL, l, k, t)
HOOK(pthread_rwlock_unlock, (pthread_rwlock_t *l), l, unlock_rwlock(RWLOCK), l)

/* ---- semaphores ---- */

typedef _Atomic uint32_t semaphore;

static int failed(int err)
{
	if (err)
		errno = err;
	return err ? -1 : 0;
}

static int try_semaphore(semaphore *s)
{
	uint32_t value = atomic_load(s);

	while (value && !atomic_compare_exchange_weak(s, &value, value - 1))
		;
	return value ? 0 : EAGAIN;
}

static int take_semaphore(semaphore *s, clockid_t clock, const struct timespec *until)
{
	int err;

	while ((err = try_semaphore(s)) && !(err = rest(clock, until)))
		;
	return err;
}

#define SEM_HOOK(name, parameters, object, ours, ...) NEW_HOOK(name, parameters, object, ours, failed(ENOSYS), __VA_ARGS__)
#define SEMAPHORE ((semaphore *)s)

SEM_HOOK(sem_init, (sem_t *s, int shared, unsigned value), s, (atomic_store(SEMAPHORE, value), 0), s, shared, value)
SEM_HOOK(sem_destroy, (sem_t *s), s, 0, s)
SEM_HOOK(sem_wait, (sem_t *s), s, take_semaphore(SEMAPHORE, CLOCK_REALTIME, NULL), s)
SEM_HOOK(sem_trywait, (sem_t *s), s, failed(try_semaphore(SEMAPHORE)), s)
SEM_HOOK(sem_timedwait, (sem_t *s, const struct timespec *t), s, failed(take_semaphore(SEMAPHORE, CLOCK_REALTIME, t)), s, t)
NEW_HOOK(sem_clockwait, (sem_t *s, clockid_t k, const struct timespec *t), s, failed(take_semaphore(SEMAPHORE, k, t)), failed(EINVAL), s, k, t)
SEM_HOOK(sem_post, (sem_t *s), s, (atomic_fetch_add(SEMAPHORE, 1), 0), s)
SEM_HOOK(sem_getvalue, (sem_t *s, int *value), s, (*value = atomic_load(SEMAPHORE), 0), s, value)
