//go:build ignore

/*
 * The functions of the C library that this library stands in front of. Each asks whether
 * the file, descriptor or address is one of the region's, and does what the C library would
 * do if not.
 */
#define _GNU_SOURCE

#include "files.h"
#include "machine.h"
#include "real.h"
#include "report.h"
#include "settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "region.h"


/* ---- opening ---- */

static bool is_device(const char *path)
{
	const struct settings *s = settings();

	return s && path && !strcmp(path, s->device);
}

#define CALLER __builtin_return_address(0)

/* -2: the C library shall open it. */
static int open_ours(const char *path, int flags, mode_t mode, const void *caller)
{
	int fd;

	if (files_know(path))
		return files_open(path, flags, mode);
	if (is_device(path)) {
		fd = raw(SYS_openat, AT_FDCWD, path, flags, mode);
		return fd < 0 ? fd : files_device(fd);
	}
	fd = machine_open(path, caller);
	return fd < 0 ? -2 : fd;
}

#define MODE(flags)                                         \
	({                                                  \
		mode_t mode_ = 0;                           \
		if ((flags) & (O_CREAT | __O_TMPFILE)) {    \
			va_list args_;                      \
			va_start(args_, flags);             \
			mode_ = va_arg(args_, mode_t);      \
			va_end(args_);                      \
		}                                           \
		mode_;                                      \
	})

#define OPEN(name)                                                                   \
	int name(const char *path, int flags, ...)                                   \
	{                                                                            \
		mode_t mode = MODE(flags);                                           \
		int fd = open_ours(path, flags, mode, CALLER);                       \
		return fd != -2 ? fd : REAL(name)(path, flags, mode);                \
	}
#define OPENAT(name)                                                                 \
	int name(int at, const char *path, int flags, ...)                           \
	{                                                                            \
		mode_t mode = MODE(flags);                                           \
		int fd = open_ours(path, flags, mode, CALLER);                       \
		return fd != -2 ? fd : REAL(name)(at, path, flags, mode);            \
	}
#define OPEN_2(name)                                                                 \
	int name(const char *path, int flags);                                       \
	int name(const char *path, int flags)                                        \
	{                                                                            \
		int fd = open_ours(path, flags, 0, CALLER);                          \
		return fd != -2 ? fd : REAL(name)(path, flags);                      \
	}
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
OPEN_2(__open_2) /* of programs that were built with _FORTIFY_SOURCE */
OPEN_2(__open64_2)

int creat(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return open64(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

/* fopen opens by the kernel, past open. UCX reads files of /proc with it. */
#define FOPEN(name)                                                                  \
	FILE *name(const char *path, const char *mode)                               \
	{                                                                            \
		int fd = machine_open(path, CALLER);                                 \
		return fd < 0 ? REAL(name)(path, mode) : fdopen(fd, mode);           \
	}
FOPEN(fopen)
FOPEN(fopen64)

static const char *shm_path(const char *name, char path[static 300])
{
	snprintf(path, 300, "/dev/shm/%s", name + strspn(name, "/"));
	return path;
}

/* Before glibc 2.34 the C library has them in a library of its own, which an image may lack. */
static int missing(void)
{
	errno = ENOSYS;
	return -1;
}

int shm_open(const char *name, int flags, mode_t mode)
{
	char path[300];

	if (files_know(shm_path(name, path)))
		return files_open(path, flags | O_CLOEXEC, mode);
	return REAL(shm_open) ? REAL(shm_open)(name, flags, mode) : missing();
}

int shm_unlink(const char *name)
{
	char path[300];

	if (files_know(shm_path(name, path)))
		return files_unlink(path);
	return REAL(shm_unlink) ? REAL(shm_unlink)(name) : missing();
}

/* As mkostemp: other letters for the last six until no file has the name. */
static int make_temporary(char *template, int flags)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
	char *x = template + strlen(template) - 6;
	unsigned char random[6];
	int fd;

	do {
		raw(SYS_getrandom, random, sizeof(random), 0);
		for (int i = 0; i < 6; i++)
			x[i] = letters[random[i] % (sizeof(letters) - 1)];
		fd = files_open(template, O_RDWR | O_CREAT | O_EXCL | flags, 0600);
	} while (fd < 0 && errno == EEXIST);
	return fd;
}

static bool is_template(const char *path) { return strlen(path) >= 6 && files_know(path); }

int mkstemp(char *path) { return is_template(path) ? make_temporary(path, 0) : REAL(mkstemp)(path); }
int mkstemp64(char *path) { return is_template(path) ? make_temporary(path, 0) : REAL(mkstemp64)(path); }
int mkostemp(char *path, int flags) { return is_template(path) ? make_temporary(path, flags) : REAL(mkostemp)(path, flags); }
int mkostemp64(char *path, int flags) { return is_template(path) ? make_temporary(path, flags) : REAL(mkostemp64)(path, flags); }

/* ---- names ---- */

int unlink(const char *path) { return files_know(path) ? files_unlink(path) : REAL(unlink)(path); }
int unlinkat(int at, const char *path, int flags) { return files_know(path) ? files_unlink(path) : REAL(unlinkat)(at, path, flags); }
int remove(const char *path) { return files_know(path) ? files_unlink(path) : REAL(remove)(path); }

/* All ranks are of one user. */
int chmod(const char *path, mode_t mode) { return files_know(path) ? 0 : REAL(chmod)(path, mode); }
int fchmod(int fd, mode_t mode) { return files_of(fd) >= 0 ? 0 : REAL(fchmod)(fd, mode); }
int fchown(int fd, uid_t uid, gid_t gid) { return files_of(fd) >= 0 ? 0 : REAL(fchown)(fd, uid, gid); }

int access(const char *path, int mode)
{
	struct stat st;

	return files_know(path) ? files_stat_path(path, &st) : REAL(access)(path, mode);
}

/* ---- descriptors ---- */

int close(int fd)
{
	files_closing(fd);
	return REAL(close)(fd);
}

static int copied(int from, int to)
{
	if (to >= 0)
		files_copied(from, to);
	return to;
}

int dup(int fd) { return copied(fd, REAL(dup)(fd)); }

int dup2(int from, int to) { return copied(from, REAL(dup2)(from, to)); }
int dup3(int from, int to, int flags) { return copied(from, REAL(dup3)(from, to, flags)); }

#define FCNTL(name)                                                                  \
	int name(int fd, int command, ...)                                           \
	{                                                                            \
		va_list args;                                                        \
		va_start(args, command);                                             \
		void *argument = va_arg(args, void *);                               \
		va_end(args);                                                        \
		int result = REAL(name)(fd, command, argument);                      \
		if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)                \
			copied(fd, result);                                          \
		return result;                                                       \
	}
FCNTL(fcntl)
FCNTL(fcntl64)

ssize_t read(int fd, void *to, size_t n) { return files_of(fd) < 0 ? REAL(read)(fd, to, n) : files_read(fd, to, n); }

ssize_t write(int fd, const void *from, size_t n)
{
	report_init(fd, from, n);
	return files_of(fd) < 0 ? REAL(write)(fd, from, n) : files_write(fd, from, n);
}

ssize_t pread(int fd, void *to, size_t n, off_t at) { return files_of(fd) < 0 ? REAL(pread)(fd, to, n, at) : files_read_at(fd, to, n, at); }
ssize_t pread64(int fd, void *to, size_t n, off64_t at) { return files_of(fd) < 0 ? REAL(pread64)(fd, to, n, at) : files_read_at(fd, to, n, at); }
ssize_t pwrite(int fd, const void *from, size_t n, off_t at) { return files_of(fd) < 0 ? REAL(pwrite)(fd, from, n, at) : files_write_at(fd, from, n, at); }
ssize_t pwrite64(int fd, const void *from, size_t n, off64_t at) { return files_of(fd) < 0 ? REAL(pwrite64)(fd, from, n, at) : files_write_at(fd, from, n, at); }

off_t lseek(int fd, off_t offset, int whence) { return files_of(fd) < 0 ? REAL(lseek)(fd, offset, whence) : files_seek(fd, offset, whence); }
off64_t lseek64(int fd, off64_t offset, int whence) { return files_of(fd) < 0 ? REAL(lseek64)(fd, offset, whence) : files_seek(fd, offset, whence); }

int ftruncate(int fd, off_t n) { return files_of(fd) < 0 ? REAL(ftruncate)(fd, n) : files_resize(fd, n, false); }
int ftruncate64(int fd, off64_t n) { return files_of(fd) < 0 ? REAL(ftruncate64)(fd, n) : files_resize(fd, n, false); }

static int allocate(int fd, int mode, off_t from, off_t n)
{
	if (!mode && from >= 0 && n > 0)
		return files_resize(fd, from + n, true);
	errno = mode ? EOPNOTSUPP : EINVAL;
	return -1;
}

int fallocate(int fd, int mode, off_t from, off_t n) { return files_of(fd) < 0 ? REAL(fallocate)(fd, mode, from, n) : allocate(fd, mode, from, n); }
int fallocate64(int fd, int mode, off64_t from, off64_t n) { return files_of(fd) < 0 ? REAL(fallocate64)(fd, mode, from, n) : allocate(fd, mode, from, n); }
int posix_fallocate(int fd, off_t from, off_t n) { return files_of(fd) < 0 ? REAL(posix_fallocate)(fd, from, n) : allocate(fd, 0, from, n) ? errno : 0; }
int posix_fallocate64(int fd, off64_t from, off64_t n) { return files_of(fd) < 0 ? REAL(posix_fallocate64)(fd, from, n) : allocate(fd, 0, from, n) ? errno : 0; }

/* ---- stat ---- */

/*
 * The user's own libraries may have file systems, so these ask the function behind ours, or else the kernel: programs that were built
 * with glibc before 2.33 call the names that begin with underscores, and the C library of their time has no others.
 * On x86-64, struct stat is the kernel's and the same as struct stat64.
 */
#define NEXT(name, number, ...) (REAL(name) ? REAL(name)(__VA_ARGS__) : (int)raw(number, __VA_ARGS__))
#define NEXT_OLD(name, number, ...) (REAL(name) ? REAL(name)(version, __VA_ARGS__) : (int)raw(number, __VA_ARGS__))

/* A program that opens the device sees its own part of it. */
static int sized(int fd, struct stat *st, int result)
{
	if (!result && files_device_size(fd))
		st->st_size = files_device_size(fd);
	return result;
}

#define FSTAT(st, next) (files_of(fd) >= 0 ? files_stat(fd, (struct stat *)st) : sized(fd, (struct stat *)st, next))
#define STAT(st, next) (files_know(path) ? files_stat_path(path, (struct stat *)st) : next)

int fstat(int fd, struct stat *st) { return FSTAT(st, NEXT(fstat, SYS_fstat, fd, st)); }
int fstat64(int fd, struct stat64 *st) { return FSTAT(st, NEXT(fstat64, SYS_fstat, fd, st)); }
int stat(const char *path, struct stat *st) { return STAT(st, NEXT(stat, SYS_stat, path, st)); }
int stat64(const char *path, struct stat64 *st) { return STAT(st, NEXT(stat64, SYS_stat, path, st)); }
int lstat(const char *path, struct stat *st) { return STAT(st, NEXT(lstat, SYS_lstat, path, st)); }
int lstat64(const char *path, struct stat64 *st) { return STAT(st, NEXT(lstat64, SYS_lstat, path, st)); }

static bool is_fstat(const char *path, int flags) { return (flags & AT_EMPTY_PATH) && path && !*path; }

int fstatat(int at, const char *path, struct stat *st, int flags)
{
	return is_fstat(path, flags) ? fstat(at, st) : STAT(st, NEXT(fstatat, SYS_newfstatat, at, path, st, flags));
}

int fstatat64(int at, const char *path, struct stat64 *st, int flags)
{
	return is_fstat(path, flags) ? fstat64(at, st) : STAT(st, NEXT(fstatat64, SYS_newfstatat, at, path, st, flags));
}

#define OLD_STAT(name, type, result, ...)                   \
	int name(int version, __VA_ARGS__, type *st);       \
	int name(int version, __VA_ARGS__, type *st) { return result; }
OLD_STAT(__fxstat, struct stat, FSTAT(st, NEXT_OLD(__fxstat, SYS_fstat, fd, st)), int fd)
OLD_STAT(__fxstat64, struct stat64, FSTAT(st, NEXT_OLD(__fxstat64, SYS_fstat, fd, st)), int fd)
OLD_STAT(__xstat, struct stat, STAT(st, NEXT_OLD(__xstat, SYS_stat, path, st)), const char *path)
OLD_STAT(__xstat64, struct stat64, STAT(st, NEXT_OLD(__xstat64, SYS_stat, path, st)), const char *path)
OLD_STAT(__lxstat, struct stat, STAT(st, NEXT_OLD(__lxstat, SYS_lstat, path, st)), const char *path)
OLD_STAT(__lxstat64, struct stat64, STAT(st, NEXT_OLD(__lxstat64, SYS_lstat, path, st)), const char *path)

/* What MPI can still get is what is left of the region, not of the VM's own /dev/shm. */
#define STATFS(name, type)                                                           \
	int name(const char *path, struct type *s)                                   \
	{                                                                            \
		int result = REAL(name)(path, s);                                    \
		if (result == 0 && !strncmp(path, "/dev/shm", 8) && files_know("/dev/shm/ucx_shm_posix_")) { \
			s->f_bsize = REGION_PAGE;                                    \
			s->f_blocks = region_size() / REGION_PAGE;                   \
			s->f_bfree = s->f_bavail = region_left() / REGION_PAGE;      \
		}                                                                    \
		return result;                                                       \
	}
STATFS(statfs, statfs)
STATFS(statfs64, statfs64)
STATFS(statvfs, statvfs)
STATFS(statvfs64, statvfs64)

/* ---- memory ---- */

typedef void *mapper(void *at, size_t length, int protection, int flags, int fd, off_t offset);

static void *map_by_kernel(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
	return (void *)raw(SYS_mmap, at, length, protection, flags, fd, offset);
}

/* The functions behind ours. dlsym may map memory for itself while it looks for them, so they are the kernel's until then. */
static mapper *next_mmap = map_by_kernel, *next_mmap64 = map_by_kernel;

__attribute__((constructor)) static void find_mmap(void)
{
	next_mmap = REAL(mmap) ? REAL(mmap) : map_by_kernel;
	next_mmap64 = REAL(mmap64) ? REAL(mmap64) : map_by_kernel;
}

static void *map(mapper *next, void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
	if (!(flags & MAP_ANONYMOUS) && files_of(fd) >= 0)
		return files_map(at, length, protection, flags, fd, offset);
	if (files_device_size(fd) && (uint64_t)offset + length > files_device_size(fd)) {
		errno = EINVAL;
		return MAP_FAILED;
	}
	if ((flags & MAP_FIXED) && files_touch(at, length))
		return files_map_over(at, length, protection, flags, fd, offset);
	return (flags & MAP_ANONYMOUS ? map_by_kernel : next)(at, length, protection, flags, fd, offset);
}

/*
 * Memory is unmapped by the kernel, as it is mapped where no file is. UCX may write over the munmap behind ours, to forget what a
 * card knows of the memory. It tries that, and relies on it if it works. So it must hear of all of it or of nothing, and of MPI's
 * files it hears nothing.
 */
void *mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset) { return map(next_mmap, at, length, protection, flags, fd, offset); }
void *mmap64(void *at, size_t length, int protection, int flags, int fd, off64_t offset) { return map(next_mmap64, at, length, protection, flags, fd, offset); }
int munmap(void *at, size_t length) { return files_touch(at, length) ? files_unmap(at, length) : (int)raw(SYS_munmap, at, length); }

/* A pid may be that of a process in another VM, and another process's here. */
ssize_t process_vm_readv(pid_t pid, const struct iovec *to, unsigned long n, const struct iovec *from, unsigned long m, unsigned long flags)
{
	if (!settings())
		return REAL(process_vm_readv)(pid, to, n, from, m, flags);
	errno = ENOSYS;
	return -1;
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *from, unsigned long n, const struct iovec *to, unsigned long m, unsigned long flags)
{
	if (!settings())
		return REAL(process_vm_writev)(pid, from, n, to, m, flags);
	errno = ENOSYS;
	return -1;
}

/*
 * UCX and Open MPI overwrite the beginning of the mmap that they find, which is ours, to hear of all mappings; then they call
 * syscall. So that is caught, too. It never calls an mmap, which could be overwritten as well and call it again.
 */
static void *map_by_syscall(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
	return (void *)REAL(syscall)(SYS_mmap, at, length, protection, flags, fd, offset);
}

long syscall(long number, ...)
{
	va_list args;
	long a[6];

	va_start(args, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	if (number == SYS_mmap)
		return (long)map(map_by_syscall, (void *)a[0], a[1], a[2], a[3], a[4], a[5]);
	if (number == SYS_munmap && files_touch((void *)a[0], a[1]))
		return files_unmap((void *)a[0], a[1]);
	if ((number == SYS_process_vm_readv || number == SYS_process_vm_writev) && settings()) {
		errno = ENOSYS;
		return -1;
	}
	return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
