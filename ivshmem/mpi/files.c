//go:build ignore

#define _GNU_SOURCE

#include "files.h"

#include "real.h"
#include "region.h"
#include "report.h"
#include "settings.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DESCRIPTORS 65536
#define MAPPINGS 8192
#define THE_DEVICE 0x7fff
#define INHERITED 0x8000

/*
 * Names of files by which MPI libraries share memory, and no other names: the rest of
 * /dev/shm is the VM's own.
 */
static const char *const names[] = {
	"/dev/shm/mpich_shar_tmp*", /* MPICH: start, windows */
	"/dev/shm/ucx_shm_posix_*", /* UCX's posix transport */
	"/dev/shm/vader_segment.*", /* Open MPI 4's btl/vader */
	"/dev/shm/sm_segment.*",    /* Open MPI 5's btl/sm */
	"/dev/shm/osc_rdma.*",      /* Open MPI's windows */
	"/dev/shm/osc_sm.*",
	NULL,
};

/* By descriptor: 0, or 1 + the number of its file, or THE_DEVICE. For the kernel, a file's descriptor is that of an empty
 * file in memory. Its position is the kernel's, so dup and fork share it as they should. What a process has INHERITED, its
 * parent holds: a child may become another program or be killed, and would never give it back. */
static _Atomic uint16_t descriptors[DESCRIPTORS];

/* What the kernel says that each of them is. */
static struct identity {
	dev_t file_system;
	ino_t inode;
} identities[DESCRIPTORS];

struct mapping {
	char *_Atomic from, *_Atomic to; /* NULL: none */
	int file;
	bool inherited;
};
static struct mapping mappings[MAPPINGS];
static atomic_int mapped; /* no mapping is at or after this one */
static char *_Atomic lowest, *_Atomic highest;
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static pid_t self;
static uint64_t programs;

/* The thread that forks has the table. Other libraries prepare for the fork, too, with locks about which we are asked. So who
 * only looks at mappings does not wait for the table, but for who changes one of them: it may also have a lock for which the
 * thread that forks waits, such as that of an allocator. The number is odd during a change. */
static atomic_uint changes;

#define LOCK() REAL(pthread_mutex_lock)(&table)
#define UNLOCK() REAL(pthread_mutex_unlock)(&table)

static void begin_change(void)
{
	LOCK();
	changes++;
}

static void end_change(void)
{
	changes++;
	UNLOCK();
}

/* A child of vfork runs in its parent's memory until it becomes another program. What it
 * closes, its parent still has. */
static bool borrowed(void) { return raw(SYS_getpid) != self; }

/* ---- fork ---- */

static void before_fork(void)
{
	LOCK();
	region_before_fork();
}

static void after_fork(void)
{
	region_after_fork();
	UNLOCK();
}

static void inherit(void)
{
	for (int fd = 0; fd < DESCRIPTORS; fd++)
		if (descriptors[fd] && descriptors[fd] != THE_DEVICE)
			descriptors[fd] |= INHERITED;
	for (int m = 0; m < mapped; m++)
		mappings[m].inherited = true;
	self = raw(SYS_getpid);
}

static void in_child(void)
{
	if (self)
		inherit();
	after_fork();
}

/* From the beginning: a thread may fork while another one opens the region. */
__attribute__((constructor)) static void hear_of_forks(void)
{
	if (settings())
		pthread_atfork(before_fork, after_fork, in_child);
}

/* Gives back what a descriptor or a mapping holds. */
static void drop_descriptor(uint16_t what)
{
	if (what && what != THE_DEVICE && !(what & INHERITED))
		region_drop(what - 1);
}

static void drop_mapping(const struct mapping *m)
{
	if (!m->inherited)
		region_drop(m->file);
}

/* A process that exits leaves nothing; one that is killed leaves its files until the run
 * ends. */
__attribute__((destructor)) static void leave(void)
{
	bool own = self && !borrowed();

	for (int fd = 0; own && fd < DESCRIPTORS; fd++)
		drop_descriptor(descriptors[fd]);
	for (int m = 0; own && m < mapped; m++)
		if (mappings[m].from)
			drop_mapping(&mappings[m]);
	self = 0;
}

/* ---- paths ---- */

enum state { UNOPENED, OPENED, FAILED };

static enum state open_region(const struct settings *s)
{
	int err = region_open(s->device, s->vm, s->programs);

	if (err) {
		say("no shared memory for MPI: %s: %s", s->device, strerror(err));
		return FAILED;
	}
	self = raw(SYS_getpid);
	debug("%s has %llu bytes for MPI", s->device, (unsigned long long)region_left());
	return OPENED;
}

bool files_ready(void)
{
	static _Atomic enum state state;
	const struct settings *s = settings();

	if (state == UNOPENED && s) {
		LOCK();
		if (state == UNOPENED)
			state = open_region(s);
		UNLOCK();
	}
	return state == OPENED;
}

bool files_know(const char *path)
{
	if (!path || strncmp(path, "/dev/shm/", 9) || !settings())
		return false;
	for (const char *const *n = names; *n; n++)
		if (!fnmatch(*n, path, 0))
			return files_ready();
	return false;
}

static int failed(int err)
{
	errno = err;
	return -1;
}

/* ---- descriptors ---- */

static struct identity identify(int fd)
{
	struct stat st = {0};

	raw(SYS_fstat, fd, &st);
	return (struct identity){st.st_dev, st.st_ino};
}

/* Whether a descriptor is still what it was when it became ours. */
static bool is_same(int fd)
{
	struct identity now = identify(fd);

	return now.file_system == identities[fd].file_system && now.inode == identities[fd].inode;
}

/* Says what a descriptor is from now on. */
static void become(int fd, uint16_t what)
{
	if (what)
		identities[fd] = identify(fd);
	drop_descriptor(atomic_exchange(&descriptors[fd], what));
}

/* What a descriptor is, as in descriptors. The C library closes some without asking us (fclose,
 * closefrom), and the kernel gives their numbers to other files; what is written to those must
 * not come into the device. */
static uint16_t what_is(int fd)
{
	int saved = errno;

	if (!self || fd < 0 || fd >= DESCRIPTORS || !descriptors[fd])
		return 0;
	if (is_same(fd))
		return descriptors[fd];
	if (!borrowed())
		become(fd, 0);
	errno = saved;
	return 0;
}

int files_of(int fd)
{
	uint16_t what = what_is(fd);

	return what && what != THE_DEVICE ? (what & ~INHERITED) - 1 : -1;
}

static atomic_bool has_ucx;

bool files_of_ucx(void) { return has_ucx; }

int files_open(const char *path, int flags, mode_t mode)
{
	int file, fd = raw(SYS_memfd_create, path, flags & O_CLOEXEC ? MFD_CLOEXEC : 0);

	if (fd < 0)
		return -1;
	file = fd < DESCRIPTORS ? region_get(path, flags, mode) : -EMFILE;
	debug("open %s: %d", path, file);
	if (file < 0) {
		raw(SYS_close, fd);
		return failed(-file);
	}
	become(fd, file + 1);
	if (!strncmp(path, "/dev/shm/ucx_", 13))
		has_ucx = true;
	return fd;
}

void files_closing(int fd)
{
	if (self && fd >= 0 && fd < DESCRIPTORS && descriptors[fd] && !borrowed())
		become(fd, 0);
}

void files_copied(int from, int to)
{
	uint16_t what = what_is(from);

	if (!self || to < 0 || to >= DESCRIPTORS || to == from || borrowed())
		return;
	if (what && what != THE_DEVICE && !(what & INHERITED))
		region_hold(what - 1);
	become(to, what);
}

off_t files_seek(int fd, off_t offset, int whence)
{
	if (whence == SEEK_END) {
		offset += region_stat(files_of(fd)).size;
		whence = SEEK_SET;
	}
	return raw(SYS_lseek, fd, offset, whence);
}

ssize_t files_read_at(int fd, void *to, size_t n, off_t at)
{
	struct region_file f = region_stat(files_of(fd));

	if (at < 0)
		return failed(EINVAL);
	if ((uint64_t)at >= f.size)
		return 0;
	if (n > f.size - at)
		n = f.size - at;
	if (f.at == REGION_NOWHERE)
		memset(to, 0, n);
	else
		memcpy(to, region_base() + f.at + at, n);
	return n;
}

static bool only_zeros(const char *from, size_t n)
{
	return !n || (!*from && !memcmp(from, from + 1, n - 1));
}

/* Zeros need no place, see struct region_file. */
static int put(int file, const void *from, size_t n, off_t at)
{
	int err;

	if (region_stat(file).at == REGION_NOWHERE && only_zeros(from, n))
		return 0;
	if ((err = region_place(file)) < 0)
		return err;
	memcpy(region_base() + region_stat(file).at + at, from, n);
	return 0;
}

/* A child moves no file, since its parent may have mapped it. */
static int resize(int fd, uint64_t size, bool keep)
{
	int file = files_of(fd), err;
	bool inherited = descriptors[fd] & INHERITED;

	if (inherited && (err = region_hold(file)) < 0)
		return err;
	err = region_resize(file, size, keep);
	if (inherited)
		region_drop(file);
	return err;
}

/* UCX asks again whenever it looks for messages, so a process says it once. */
static int no_room(int err, uint64_t size)
{
	static atomic_bool said;

	if (!atomic_exchange(&said, true))
		say("no room for a file of %llu bytes in shared memory: %llu are left; submit the job with a larger --ivshmem=N:SIZE",
		    (unsigned long long)size, (unsigned long long)region_left());
	return failed(-err);
}

ssize_t files_write_at(int fd, const void *from, size_t n, off_t at)
{
	int err = at < 0 ? -EINVAL : resize(fd, at + n, true);

	if (!err)
		err = put(files_of(fd), from, n, at);
	if (err == -ENOSPC)
		return no_room(err, at + n);
	return err ? failed(-err) : (ssize_t)n;
}

ssize_t files_read(int fd, void *to, size_t n)
{
	off_t at = raw(SYS_lseek, fd, 0, SEEK_CUR);
	ssize_t got = at < 0 ? -1 : files_read_at(fd, to, n, at);

	if (got > 0)
		raw(SYS_lseek, fd, at + got, SEEK_SET);
	return got;
}

ssize_t files_write(int fd, const void *from, size_t n)
{
	off_t at = raw(SYS_lseek, fd, 0, SEEK_CUR);
	ssize_t put = at < 0 ? -1 : files_write_at(fd, from, n, at);

	if (put > 0)
		raw(SYS_lseek, fd, at + put, SEEK_SET);
	return put;
}

int files_resize(int fd, uint64_t size, bool keep)
{
	int err = resize(fd, size, keep);

	if (err == -ENOSPC)
		return no_room(err, size);
	return err ? failed(-err) : 0;
}

/* ---- stat ---- */

static int describe(int file, const struct region_file *f, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_dev = 0x5356; /* no device of the kernel's */
	st->st_ino = file + 2;
	st->st_mode = S_IFREG | f->mode;
	st->st_nlink = *f->name != 0;
	st->st_uid = raw(SYS_geteuid); /* all ranks are of one user */
	st->st_gid = raw(SYS_getegid);
	st->st_size = f->size;
	st->st_blksize = REGION_PAGE;
	st->st_blocks = f->room / 512;
	return 0;
}

int files_stat(int fd, struct stat *st)
{
	struct region_file f = region_stat(files_of(fd));

	return describe(files_of(fd), &f, st);
}

int files_stat_path(const char *path, struct stat *st)
{
	struct region_file f;
	int file = region_find(path, &f);

	return file < 0 ? failed(-file) : describe(file, &f, st);
}

/* MPICH's ranks of a node have one file, and its maker removes it when all others have it. */
int files_unlink(const char *path)
{
	int met = region_unlink(path);

	if (met > 0)
		report_peer(path);
	return met < 0 ? failed(-met) : 0;
}

/* ---- mappings ---- */

/* Those that change mappings have the table's lock. */

static struct mapping *unused(void)
{
	for (int m = 0; m < MAPPINGS; m++)
		if (!mappings[m].from) {
			if (m >= mapped)
				mapped = m + 1;
			return &mappings[m];
		}
	return NULL;
}

static void note(struct mapping *m, char *from, char *to, int file)
{
	*m = (struct mapping){from, to, file, false};
	if (!lowest || from < lowest)
		lowest = from;
	if (to > highest)
		highest = to;
}

/* Whether a part of [from, to) is mapped from a file of MPI's. */
static bool is_mapped(const char *from, const char *to)
{
	unsigned before;
	bool found;

	if (!self || to <= lowest || from >= highest)
		return false;
	do {
		while ((before = changes) % 2)
			raw(SYS_sched_yield);
		found = false;
		for (int m = 0; m < mapped && !found; m++)
			found = mappings[m].from && from < mappings[m].to && mappings[m].from < to;
	} while (changes != before);
	return found;
}

bool files_touch(const void *at, size_t length) { return is_mapped(at, (const char *)at + length) && !borrowed(); }

bool files_mapped(const volatile void *at) { return is_mapped((const char *)at, (const char *)at + 1); }

/* Takes [from, to) out of a mapping, of which up to two pieces are left. */
static void cut(struct mapping *m, char *from, char *to)
{
	struct mapping was = *m, *rest;

	m->from = NULL;
	if (was.from < from)
		*m = (struct mapping){was.from, from, was.file, was.inherited};
	if (to < was.to && (rest = m->from ? unused() : m)) {
		if (rest != m && !was.inherited)
			region_hold(was.file);
		*rest = (struct mapping){to, was.to, was.file, was.inherited};
	}
	if (!m->from)
		drop_mapping(&was);
}

/* Takes [at, at + length) out of all mappings, other than but. */
static void forget(void *at, size_t length, const struct mapping *but)
{
	char *from = at, *to = from + (length + REGION_PAGE - 1) / REGION_PAGE * REGION_PAGE;

	for (int m = 0; m < mapped; m++)
		if (&mappings[m] != but && mappings[m].from && mappings[m].from < to && from < mappings[m].to)
			cut(&mappings[m], from, to);
}

/* The kernel's and the table's change are one: between them, another thread could map a file of
 * MPI's at these addresses, and it would be forgotten. */
int files_unmap(void *at, size_t length)
{
	int result;

	begin_change();
	result = raw(SYS_munmap, at, length);
	if (result == 0)
		forget(at, length, NULL);
	end_change();
	return result;
}

void *files_map_over(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
	void *got;

	begin_change();
	got = (void *)raw(SYS_mmap, at, length, protection, flags, fd, offset);
	if (got != MAP_FAILED)
		forget(at, length, NULL);
	end_change();
	return got;
}

void *files_map(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
	int file = files_of(fd);
	struct region_file f = region_stat(file);
	struct mapping *m;
	void *got = MAP_FAILED;
	int err;

	if (!length || offset < 0 || offset % REGION_PAGE || length > f.room || (uint64_t)offset > f.room - length || (flags & MAP_TYPE) == MAP_PRIVATE) {
		debug("map %zu of %llu bytes of %s: refused", length, (unsigned long long)f.room, f.name);
		errno = EINVAL;
		return MAP_FAILED;
	}
	if ((err = region_hold(file)) < 0) {
		failed(-err);
		return MAP_FAILED;
	}
	if ((err = region_place(file)) < 0) {
		region_drop(file);
		no_room(err, f.room);
		return MAP_FAILED;
	}
	f = region_stat(file);
	begin_change();
	m = unused();
	if (m)
		/* The kernel has filled these pages already, and has no others for them. */
		got = region_map(at, length, protection, flags & ~(MAP_POPULATE | MAP_NORESERVE), f.at + offset);
	else
		errno = ENOMEM;
	if (got != MAP_FAILED) {
		note(m, got, (char *)got + (length + REGION_PAGE - 1) / REGION_PAGE * REGION_PAGE, file);
		forget(got, length, m); /* with MAP_FIXED, others may have been there */
	}
	end_change();
	if (got == MAP_FAILED)
		region_drop(file);
	else if (f.vm != settings()->vm)
		report_peer(f.name);
	return got;
}

/* ---- the device itself ---- */

int files_device(int fd)
{
	if (fd < 0 || fd >= DESCRIPTORS || !files_ready())
		return fd;
	programs = region_claim_for_program();
	if (!programs) {
		raw(SYS_close, fd);
		say("MPI has taken the part of %s that is for programs; run this program with --mpi-shm=off, or submit the job with a larger --ivshmem=N:SIZE",
		    settings()->device);
		return failed(EBUSY);
	}
	become(fd, THE_DEVICE);
	return fd;
}

uint64_t files_device_size(int fd) { return what_is(fd) == THE_DEVICE ? programs : 0; }
