//go:build ignore

#define _GNU_SOURCE

#include "real.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#ifndef __x86_64__
#error "the system call of this architecture is not written yet"
#endif

/* These came into glibc's libc.so with 2.34, and their old names are there too: images may have
 * an older glibc than the one that this is built with. */
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
__asm__(".symver dlvsym, dlvsym@GLIBC_2.2.5");
__asm__(".symver dlopen, dlopen@GLIBC_2.2.5");
__asm__(".symver dlclose, dlclose@GLIBC_2.2.5");
__asm__(".symver dladdr, dladdr@GLIBC_2.2.5");

/*
 * glibc has condition variables of two kinds, which must not be mixed; programs use those of
 * 2.3.2. Before glibc 2.36, dlsym finds the older ones here (bug 14932): RHEL 8 and 9, Ubuntu
 * 22.04.
 */
void *real_function(const char *name)
{
	void *found = strncmp(name, "pthread_cond_", 13) ? NULL : dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");

	return found ? found : dlsym(RTLD_NEXT, name);
}

/* A library that the program has loaded for itself is not behind ours, but has its name. */
void *real_function_of(const char *library, const char *name)
{
	void *found = real_function(name), *loaded;

	if (!found && (loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD)))
		found = dlsym(loaded, name);
	return found;
}

const char *real_library(const void *address)
{
	Dl_info about;

	return dladdr(address, &about) ? about.dli_fname : NULL;
}

bool real_loaded(const char *library)
{
	void *loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);

	if (loaded)
		dlclose(loaded);
	return loaded;
}

long raw_call(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	if (result < 0 && result > -4096) {
		errno = -result;
		return -1;
	}
	return result;
}
