/*
 * Each lock while another process uses it at the worst moment: right after this one has read something. Says nothing if all is right.
 */
#include <stdatomic.h>
#include <stdio.h>

static void (*meanwhile)(void);

static void now(void)
{
	void (*other)(void) = meanwhile;

	meanwhile = NULL;
	if (other)
		other();
}

#undef atomic_load
#define atomic_load(at) ({ __auto_type read_ = __atomic_load_n(at, __ATOMIC_SEQ_CST); now(); read_; })
#include "../locks.c"

bool files_mapped(const volatile void *at) { return at && 0; }

static struct condition condition = {.tickets = 5};
static struct rwlock rwlock;
static semaphore sem = 2;
static int bad;

static void overtake(void)
{
	atomic_fetch_add(&condition.tickets, 1); /* one more waits, and all are woken */
	wake_condition(&condition);
}

static void read_too(void) { try_read(&rwlock); }
static void take_too(void) { try_semaphore(&sem); }

static void expect(const char *what, uint64_t got, uint64_t want)
{
	if (got != want)
		bad = printf("%s: %lu, not %lu\n", what, (unsigned long)got, (unsigned long)want);
}

int main(void)
{
	struct timespec gone = {1};
	pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;

	meanwhile = overtake;
	wake_condition(&condition);
	expect("tickets that pass after an overtaken broadcast", condition.passed, condition.tickets);

	pthread_mutex_lock(&m);
	expect("a wait whose time is over", wait_condition(&condition, &m, CLOCK_REALTIME, &gone), ETIMEDOUT);
	expect("tickets that pass after it", condition.passed, condition.tickets);

	meanwhile = read_too;
	expect("a second reader", try_read(&rwlock), 0);
	expect("readers", rwlock.holders, 2);
	meanwhile = take_too;
	expect("a second one who takes a semaphore of two", try_semaphore(&sem), 0);
	expect("a third", try_semaphore(&sem), EAGAIN);
	return bad != 0;
}
