/* The functions behind ours. */
#ifndef REAL_H
#define REAL_H

#include <stdbool.h>

/*
 * REAL(open) is the open that the program would call without this library. Libraries that
 * are loaded later than this one may have an open of their own, so it need not be the C
 * library's. It is NULL if there is none, such as fstat before glibc 2.33.
 */
#define REAL(name)                                                                     \
	({                                                                             \
		static __typeof__(&name) real_;                                        \
		if (!real_)                                                            \
			real_ = (__typeof__(&name))real_function(#name);               \
		real_;                                                                 \
	})

void *real_function(const char *name);

/* The same for a function of a library that the program has, or may load later for itself. NULL if it has
 * none. */
void *real_function_of(const char *library, const char *name);

/* The path of the library or program in which an address is. NULL if it is in none. */
const char *real_library(const void *address);

/* Whether the program has loaded a library, by its name without a directory. */
bool real_loaded(const char *library);

/* The system call, which nobody else has changed. Returns -1 with errno. */
long raw_call(long number, long a, long b, long c, long d, long e, long f);
#define raw(...) RAW_SEVEN(__VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define RAW_SEVEN(n, a, b, c, d, e, f, ...) \
	raw_call((long)(n), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

#endif
