/* A library that is there before ours, such as jemalloc, and has a lock of its own around fork. The program says where it is. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

pthread_mutex_t *mutex_of_library;
atomic_bool fork_begins;

static void lock(void)
{
	fork_begins = true;
	pthread_mutex_lock(mutex_of_library);
}

static void unlock(void) { pthread_mutex_unlock(mutex_of_library); }

__attribute__((constructor)) static void hear_of_forks(void) { pthread_atfork(lock, unlock, unlock); }
