//go:build ignore

#define _GNU_SOURCE

#include "region.h"

#include "real.h"
#include "settings.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

struct directory {
	_Atomic uint32_t lock;  /* 1 while a process changes the directory */
	uint32_t program;       /* a program uses the first bytes itself */
	uint64_t clean;         /* bytes at the end that were given away at least once */
	struct region_file files[REGION_FILES];
};

#define ROUNDED(n) (((n) + REGION_PAGE - 1) / REGION_PAGE * REGION_PAGE)

static const char *path; /* of the device */
static char *base;
static uint64_t bytes;    /* of the device */
static uint64_t programs; /* bytes at the beginning for a program that uses the device itself */
static unsigned here;     /* this VM */
static struct directory *dir;
static pthread_mutex_t threads = PTHREAD_MUTEX_INITIALIZER;

/* The memory is a file, or else a character device, whose size sysfs tells. */
static uint64_t size_of(int fd)
{
	char attribute[64], text[32] = "";
	struct stat st;
	int file;

	if (raw(SYS_fstat, fd, &st) < 0)
		return 0;
	if (!S_ISCHR(st.st_mode))
		return st.st_size;
	snprintf(attribute, sizeof(attribute), "/sys/dev/char/%u:%u/size", major(st.st_rdev), minor(st.st_rdev));
	file = raw(SYS_openat, AT_FDCWD, attribute, O_RDONLY | O_CLOEXEC);
	if (file < 0 || raw(SYS_read, file, text, sizeof(text) - 1) < 0)
		text[0] = 0;
	if (file >= 0)
		raw(SYS_close, file);
	return number_of(text);
}

void *region_map(void *at, size_t length, int protection, int flags, off_t offset)
{
	int fd = raw(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC), saved;
	void *got;

	if (fd < 0)
		return MAP_FAILED;
	got = (void *)raw(SYS_mmap, at, length, protection, flags, fd, offset);
	saved = errno;
	raw(SYS_close, fd);
	errno = saved;
	return got;
}

int region_open(const char *device, unsigned vm, uint64_t first)
{
	int err = 0, fd = raw(SYS_openat, AT_FDCWD, device, O_RDWR | O_CLOEXEC);
	uint64_t size;
	void *at;

	if (fd < 0)
		return errno;
	size = size_of(fd);
	if (size < 2 * ROUNDED(sizeof(*dir)) || first > size - ROUNDED(sizeof(*dir)))
		err = ENOSPC;
	else if ((at = (void *)raw(SYS_mmap, 0, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
		err = errno;
	raw(SYS_close, fd);
	if (err)
		return err;
	path = device;
	bytes = size;
	programs = first;
	here = vm;
	dir = (struct directory *)((char *)at + bytes - ROUNDED(sizeof(*dir)));
	base = at;
	return 0;
}

char *region_base(void) { return base; }

uint64_t region_size(void) { return bytes; }

/* ---- the lock ---- */

/*
 * The lock is in the memory of the device, where nobody can sleep. It is held for a few
 * thousand instructions, or for as long as a file is zeroed. If its holder is killed, the others
 * wait until they are ended, too: the holder's relay tells Slurm that a rank is gone (vmstep/relay,
 * Leave). They could not tell a dead holder from one in a VM that stands still.
 */
static void lock(void)
{
	REAL(pthread_mutex_lock)(&threads);
	while (atomic_exchange_explicit(&dir->lock, 1, memory_order_acquire))
		sched_yield();
}

static void unlock(void)
{
	atomic_store_explicit(&dir->lock, 0, memory_order_release);
	REAL(pthread_mutex_unlock)(&threads);
}

/* ---- room ---- */

static uint64_t top(void) { return (char *)dir - base; }

static uint64_t bottom(void) { return dir->program ? programs : 0; }

/* Bytes that files have or were promised. */
static uint64_t given(void)
{
	uint64_t sum = 0;

	for (struct region_file *f = dir->files; f < dir->files + REGION_FILES; f++)
		if (f->used)
			sum += f->room;
	return sum;
}

static uint64_t left(void) { return top() - bottom() - given(); }

/* Returns the file that has its place in [from, to), other than but; NULL if it is free. */
static struct region_file *occupant(uint64_t from, uint64_t to, const struct region_file *but)
{
	for (struct region_file *f = dir->files; f < dir->files + REGION_FILES; f++)
		if (f->used && f->room && f != but && f->at < to && from < f->at + f->room)
			return f;
	return NULL;
}

/* Returns the highest free place for a file; UINT64_MAX if there is none. */
static uint64_t place(uint64_t room)
{
	uint64_t end = top();
	struct region_file *f;

	while (end >= bottom() + room) {
		f = occupant(end - room, end, NULL);
		if (!f)
			return end - room;
		end = f->at;
	}
	return UINT64_MAX;
}

/* Zeroes what was given away before. Other memory has been zero since the run began. */
static void zero(uint64_t from, uint64_t to)
{
	uint64_t used = top() - dir->clean;

	if (to > used)
		memset(base + (from > used ? from : used), 0, to - (from > used ? from : used));
	if (from < used)
		dir->clean = top() - from;
}

/* Gives the file a place for so much room. */
static int settle(struct region_file *f, uint64_t room)
{
	uint64_t at = place(room);

	if (at == UINT64_MAX)
		return -ENOSPC;
	zero(at, at + room);
	if (f->at != REGION_NOWHERE)
		memcpy(base + at, base + f->at, f->size);
	f->at = at;
	f->room = room;
	return 0;
}

/* Gives the file at least size bytes, elsewhere if need be. A file that has a place and is mapped, or
 * that others have opened, stays where it is. */
static int grow(struct region_file *f, uint64_t size)
{
	uint64_t room = ROUNDED(size);

	if (size > bytes)
		return -ENOSPC;
	if (room <= f->room)
		return 0;
	if (room - f->room > left())
		return -ENOSPC;
	if (f->at == REGION_NOWHERE) {
		f->room = room;
		return 0;
	}
	if (f->at + room <= top() && !occupant(f->at + f->room, f->at + room, f)) {
		zero(f->at + f->room, f->at + room);
		f->room = room;
		return 0;
	}
	return f->users > 1 ? -ENOSPC : settle(f, room);
}

static int resize(struct region_file *f, uint64_t size, bool keep)
{
	int err;

	if (keep && size <= f->size)
		return 0;
	if (size > f->size && (err = grow(f, size)) < 0)
		return err;
	if (size < f->size && f->at != REGION_NOWHERE)
		memset(base + f->at + size, 0, f->size - size);
	f->size = size;
	return 0;
}

/* ---- names ---- */

static struct region_file *find(const char *name)
{
	for (struct region_file *f = dir->files; f < dir->files + REGION_FILES; f++)
		if (f->used && !strcmp(f->name, name))
			return f;
	return NULL;
}

static struct region_file *make(const char *name, mode_t mode)
{
	for (struct region_file *f = dir->files; f < dir->files + REGION_FILES; f++)
		if (!f->used) {
			memset(f, 0, sizeof(*f));
			strcpy(f->name, name);
			f->used = 1;
			f->vm = here;
			f->mode = mode & 0777;
			f->at = REGION_NOWHERE;
			return f;
		}
	return NULL;
}

static void forget_if_unused(struct region_file *f)
{
	if (!f->users && !*f->name)
		f->used = 0;
}

static int number(struct region_file *f) { return f - dir->files; }

static int get(const char *name, int flags, mode_t mode)
{
	struct region_file *f = find(name);

	if (f && (flags & O_CREAT) && (flags & O_EXCL))
		return -EEXIST;
	if (!f && !(flags & O_CREAT))
		return -ENOENT;
	if (!f && !(f = make(name, mode)))
		return -ENOSPC;
	if (flags & O_TRUNC)
		resize(f, 0, false);
	f->users++;
	if (f->vm != here)
		f->met = 1;
	return number(f);
}

int region_get(const char *name, int flags, mode_t mode)
{
	int file;

	if (strlen(name) >= REGION_NAME)
		return -ENAMETOOLONG;
	lock();
	file = get(name, flags, mode);
	unlock();
	return file;
}

int region_find(const char *name, struct region_file *copy)
{
	struct region_file *f;
	int file = -ENOENT;

	lock();
	if ((f = find(name))) {
		file = number(f);
		*copy = *f;
	}
	unlock();
	return file;
}

int region_unlink(const char *name)
{
	struct region_file *f;
	int met = -ENOENT;

	lock();
	if ((f = find(name))) {
		met = f->met;
		f->name[0] = 0;
		forget_if_unused(f);
	}
	unlock();
	return met;
}

int region_hold(int file)
{
	struct region_file *f = &dir->files[file];
	int err = -ESTALE;

	lock();
	if (f->used) {
		f->users++;
		err = 0;
	}
	unlock();
	return err;
}

void region_drop(int file)
{
	lock();
	dir->files[file].users--;
	forget_if_unused(&dir->files[file]);
	unlock();
}

int region_resize(int file, uint64_t size, bool keep)
{
	int err;

	lock();
	err = resize(&dir->files[file], size, keep);
	unlock();
	return err;
}

int region_place(int file)
{
	struct region_file *f = &dir->files[file];
	int err = 0;

	lock();
	if (f->at == REGION_NOWHERE)
		err = settle(f, f->room);
	unlock();
	return err;
}

struct region_file region_stat(int file)
{
	struct region_file copy;

	lock();
	copy = dir->files[file];
	unlock();
	return copy;
}

/* ---- programs that use the device themselves ---- */

uint64_t region_claim_for_program(void)
{
	uint64_t got = 0;

	lock();
	if (dir->program || (!occupant(0, programs, NULL) && given() <= top() - programs)) {
		if (!dir->program && top() - dir->clean < programs) /* MPI had some of it for a while */
			memset(base + top() - dir->clean, 0, programs - (top() - dir->clean));
		dir->program = 1;
		got = programs;
	}
	unlock();
	return got;
}

uint64_t region_left(void)
{
	uint64_t now;

	lock();
	now = left();
	unlock();
	return now;
}

void region_before_fork(void) { REAL(pthread_mutex_lock)(&threads); }

void region_after_fork(void) { REAL(pthread_mutex_unlock)(&threads); }
