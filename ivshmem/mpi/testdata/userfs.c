/* A file system in a library of the user's: it has one file, /userfs, whose descriptor is 900. All else goes on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static char file[4096] __attribute__((aligned(4096))) = "userfs";

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define STAT(name, ours, parameters, ...)                         \
	int name parameters;                                      \
	int name parameters                                       \
	{                                                         \
		if (!(ours))                                      \
			return NEXT(name)(__VA_ARGS__);           \
		memset(st, 0, sizeof(*st));                       \
		st->st_size = sizeof(file);                       \
		return 0;                                         \
	}
STAT(fstat, fd == 900, (int fd, struct stat *st), fd, st)
STAT(fstat64, fd == 900, (int fd, struct stat64 *st), fd, st)
STAT(stat, !strcmp(path, "/userfs"), (const char *path, struct stat *st), path, st)
STAT(stat64, !strcmp(path, "/userfs"), (const char *path, struct stat64 *st), path, st)
STAT(lstat, !strcmp(path, "/userfs"), (const char *path, struct stat *st), path, st)
STAT(lstat64, !strcmp(path, "/userfs"), (const char *path, struct stat64 *st), path, st)
STAT(fstatat, !strcmp(path, "/userfs"), (int at, const char *path, struct stat *st, int flags), at, path, st, flags)
STAT(fstatat64, !strcmp(path, "/userfs"), (int at, const char *path, struct stat64 *st, int flags), at, path, st, flags)
STAT(__fxstat, fd == 900, (int version, int fd, struct stat *st), version, fd, st)
STAT(__fxstat64, fd == 900, (int version, int fd, struct stat64 *st), version, fd, st)
STAT(__xstat, !strcmp(path, "/userfs"), (int version, const char *path, struct stat *st), version, path, st)
STAT(__xstat64, !strcmp(path, "/userfs"), (int version, const char *path, struct stat64 *st), version, path, st)
STAT(__lxstat, !strcmp(path, "/userfs"), (int version, const char *path, struct stat *st), version, path, st)
STAT(__lxstat64, !strcmp(path, "/userfs"), (int version, const char *path, struct stat64 *st), version, path, st)

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
	return fd == 900 ? file : NEXT(mmap)(at, n, protection, flags, fd, offset);
}

void *mmap64(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
	return fd == 900 ? file : NEXT(mmap64)(at, n, protection, flags, fd, offset);
}

int unmapped;

int munmap(void *at, size_t n)
{
	unmapped++;
	return NEXT(munmap)(at, n);
}

long syscall(long number, ...)
{
	va_list args;
	long a[6];

	va_start(args, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	if (number == SYS_fsync && a[0] == 900)
		return 0;
	if (number == SYS_mmap && a[4] == 900)
		return (long)file;
	return NEXT(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
