/*
 * A C library before glibc 2.34, in an image without the libraries that have these functions: nobody finds one behind another.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

void *dlsym(void *handle, const char *name)
{
	void *(*real)(void *, const char *) = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");

	return !strncmp(name, "shm_", 4) || !strncmp(name, "sem_", 4) ? NULL : real(handle, name);
}
