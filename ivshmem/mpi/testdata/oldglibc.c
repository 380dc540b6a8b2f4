/*
 * The condition variables of a C library before glibc 2.36: who looks for one without a version finds the old kind, which
 * must not be mixed with that of 2.3.2.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

#define BOTH(name)                                                                                \
	int old_##name(void), new_##name(void *, void *, void *);                                 \
	int old_##name(void)                                                                      \
	{                                                                                         \
		static const char word[] = "the old " #name "\n";                                 \
		_exit(write(1, word, sizeof(word) - 1) < 0 ? 2 : 1);                              \
	}                                                                                         \
	int new_##name(void *a, void *b, void *c)                                                 \
	{                                                                                         \
		return ((int (*)(void *, void *, void *))dlvsym(RTLD_NEXT, #name, "GLIBC_2.3.2"))(a, b, c); \
	}                                                                                         \
	__asm__(".symver old_" #name ", " #name "@@GLIBC_2.2.5");                                 \
	__asm__(".symver new_" #name ", " #name "@GLIBC_2.3.2")

BOTH(pthread_cond_init);
BOTH(pthread_cond_destroy);
BOTH(pthread_cond_wait);
BOTH(pthread_cond_timedwait);
BOTH(pthread_cond_signal);
BOTH(pthread_cond_broadcast);
