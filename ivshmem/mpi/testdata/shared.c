/* What programs do with files of MPI's, each part by its name. Says nothing if all is right. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MUST(what)                                                                       \
	do {                                                                             \
		if (!(what)) {                                                           \
			printf("line %d: not %s (%s)\n", __LINE__, #what, strerror(errno)); \
			fflush(stdout);                                                  \
			_exit(1);                                                        \
		}                                                                        \
	} while (0)

static unsigned long left(void)
{
	struct statvfs s;

	MUST(!statvfs("/dev/shm", &s));
	return s.f_bavail * s.f_bsize;
}

static void wait_for(int children)
{
	int status, bad = 0;

	for (; children; children--) {
		MUST(wait(&status) > 0);
		bad |= status;
	}
	if (bad)
		_exit(1);
}

static void *map(int fd, size_t n)
{
	void *at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	MUST(at != MAP_FAILED);
	return at;
}

/* Many processes make, size, map, fill and remove files. New ones are zero, and nobody else
 * writes there. */
static void files_one(int process, int turns)
{
	unsigned seed = process + 1;

	for (int t = 0; t < turns; t++) {
		size_t n = 1 + rand_r(&seed) % 1000000;
		struct stat st;
		char name[64];

		snprintf(name, sizeof(name), "/ucx_shm_posix_%d.%d", process, t);
		int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
		MUST(fd >= 0);
		MUST(shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600) < 0 && errno == EEXIST);
		MUST(!ftruncate(fd, n));
		MUST(!fstat(fd, &st) && st.st_size == (off_t)n);
		unsigned char *a = map(fd, n);
		close(fd);
		for (size_t i = 0; i < n; i += 61)
			MUST(a[i] == 0);
		memset(a, process + 1, n);
		int again = shm_open(name, O_RDWR, 0);
		MUST(again >= 0);
		unsigned char *b = map(again, n);
		close(again);
		MUST(!shm_unlink(name));
		MUST(shm_open(name, O_RDWR, 0) < 0 && errno == ENOENT);
		for (size_t i = 0; i < n; i += 61)
			MUST(b[i] == process + 1);
		MUST(!munmap(a, n) && !munmap(b, n));
	}
}

static void files(void)
{
	unsigned long before = left();

	for (int p = 0; p < 4; p++)
		if (!fork()) {
			files_one(p, 100);
			exit(0);
		}
	wait_for(4);
	MUST(left() == before);
}

enum { PIECE = 64 << 10 };

static void write_piece(int fd)
{
	static const char zeros[PIECE];

	MUST(write(fd, zeros, PIECE) == PIECE);
}

/* UCX's way: each rank writes zeros in small pieces to see that there is memory, and maps the file then. The files
 * have room together, however the pieces of the ranks alternate. */
static void pieces(void)
{
	enum { RANKS = 3 };
	unsigned long before = left(), n = before / RANKS / PIECE * PIECE;
	int fd[RANKS], more = shm_open("/ucx_shm_posix_more", O_RDWR | O_CREAT, 0600);
	unsigned char *at[RANKS], byte = 1;
	char name[64];

	for (int r = 0; r < RANKS; r++) {
		snprintf(name, sizeof(name), "/ucx_shm_posix_pieces.%d", r);
		fd[r] = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
		MUST(fd[r] >= 0 && !shm_unlink(name));
	}
	for (unsigned long done = 0; done < n; done += PIECE)
		for (int r = 0; r < RANKS; r++)
			write_piece(fd[r]);
	MUST(left() == before - RANKS * n && pread(fd[0], &byte, 1, n - 1) == 1 && !byte);
	for (int r = 0; r < RANKS; r++)
		memset(at[r] = map(fd[r], n), r + 1, n);
	for (int r = 0; r < RANKS; r++) {
		for (unsigned long i = 0; i < n; i += 997)
			MUST(at[r][i] == r + 1);
		MUST(!munmap(at[r], n) && !close(fd[r]));
	}
	MUST(left() == before);

	/* What is not zero is kept, and zeros are written over it. */
	MUST(pwrite(more, "slurm", 5, 9000) == 5 && pwrite(more, "\0", 1, 9001) == 1 && !ftruncate(more, 20000));
	at[0] = map(more, 20000);
	MUST(!at[0][8999] && !memcmp(at[0] + 9000, "s\0urm", 6) && !at[0][19999]);
}

/* MPICH's way: a temporary name, a byte at the end. And dup shares the position. */
static void descriptors(void)
{
	char name[] = "/dev/shm/mpich_shar_tmpXXXXXX", text[8] = "";
	int fd = mkstemp(name), copy = dup(fd);
	struct stat st;

	MUST(fd >= 0 && copy >= 0 && strcmp(name + 23, "XXXXXX"));
	MUST(lseek(fd, 9999, SEEK_SET) == 9999 && write(fd, "", 1) == 1);
	MUST(!stat(name, &st) && st.st_size == 10000 && !access(name, R_OK));
	MUST(lseek(copy, 0, SEEK_CUR) == 10000 && lseek(copy, -10, SEEK_END) == 9990);
	MUST(write(fd, "slurm", 5) == 5 && lseek(fd, 9990, SEEK_SET) == 9990 && read(copy, text, 8) == 8);
	MUST(!strcmp(text, "slurm"));
	MUST(!close(fd) && pread(copy, text, 5, 9990) == 5 && !close(copy) && fstat(copy, &st) < 0);
	MUST(!unlink(name) && access(name, R_OK) < 0 && errno == ENOENT);
	/* Other files are the machine's own. */
	fd = open("/dev/shm/slurmv-test-of-no-mpi", O_RDWR | O_CREAT, 0600);
	MUST(fd >= 0 && !fstat(fd, &st) && st.st_dev != 0x5356 && !unlink("/dev/shm/slurmv-test-of-no-mpi"));
}

/* The C library closes descriptors without asking anybody, and their numbers are given to other files. */
static void stale(void)
{
	unsigned long before = left();
	char name[] = "/tmp/slurmv-test-XXXXXX", text[8] = "";
	int fd = shm_open("/ucx_shm_posix_stale", O_RDWR | O_CREAT, 0600), pipes[2];
	struct stat st;

	MUST(fd >= 0 && !ftruncate(fd, 4096) && !shm_unlink("/ucx_shm_posix_stale"));
	MUST(!fclose(fdopen(fd, "r+")));
	MUST(mkstemp(name) == fd && write(fd, "own", 3) == 3);
	MUST(!fstat(fd, &st) && st.st_size == 3 && st.st_dev != 0x5356);
	MUST(syscall(SYS_pread64, fd, text, 8, 0) == 3 && !strcmp(text, "own"));
	MUST(!unlink(name) && left() == before && !close(fd));

	fd = shm_open("/ucx_shm_posix_stale", O_RDWR | O_CREAT, 0600);
	MUST(fd >= 0 && !syscall(SYS_close_range, fd, fd, 0));
	MUST(!pipe(pipes) && pipes[0] == fd && write(pipes[1], "pipe", 4) == 4);
	MUST(read(fd, text, 4) == 4 && !strcmp(text, "pipe") && dup(fd) > fd);

	/* And a descriptor of a file of MPI's may have had another one's number before. */
	close(fd);
	MUST(shm_open("/ucx_shm_posix_stale", O_RDWR, 0) == fd && !fclose(fdopen(fd, "r")));
	MUST(shm_open("/ucx_shm_posix_stale", O_RDWR, 0) == fd && !ftruncate(fd, 4096) && left() == before - 4096);
	MUST(!shm_unlink("/ucx_shm_posix_stale") && !close(fd) && left() == before);
}

/* What the kernel refuses changes nothing. A mutex in the region that is not known to be there is the C library's, whose second word is
 * no VM. */
static void refused(void)
{
	unsigned long before = left();
	int fd = shm_open("/ucx_shm_posix_refused", O_RDWR | O_CREAT, 0600), other;
	struct stat st;

	MUST(fd >= 0 && !ftruncate(fd, 12288) && !shm_unlink("/ucx_shm_posix_refused"));
	char *at = map(fd, 12288);
	pthread_mutex_t *m = (pthread_mutex_t *)(at + 4096);

	MUST(mmap(at + 1, 8192, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED && errno == EINVAL);
	MUST(!pthread_mutex_lock(m) && m->__data.__count == 1 && !pthread_mutex_unlock(m));
	MUST(dup2(1000, fd) < 0 && errno == EBADF && dup3(1000, fd, 0) < 0 && !fstat(fd, &st) && st.st_size == 12288);

	/* What it grants takes the place of what was there. */
	MUST(mmap(at + 4096, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == at + 4096);
	strcpy(at, "same");
	MUST(!strcmp(at + 4096, "same") && (other = open("/dev/null", O_RDONLY)) >= 0 && dup2(other, fd) == fd);
	MUST(!fstat(fd, &st) && S_ISCHR(st.st_mode) && left() == before - 12288);
	MUST(!munmap(at + 8192, 4096) && !munmap(at, 4096) && left() == before - 12288 && !munmap(at + 4096, 4096) && left() == before);
}

/* A child has its parent's files, and what it gives back its parent still has. */
static void children(void)
{
	unsigned long before = left();
	int fd = shm_open("/ucx_shm_posix_fork", O_RDWR | O_CREAT, 0600), status;
	pid_t child;

	MUST(!ftruncate(fd, 8192));
	char *at = map(fd, 8192);
	if (!fork()) {
		strcpy(at, "child");
		close(fd);
		munmap(at, 8192);
		exit(0);
	}
	wait_for(1);
	if (!(child = vfork())) {
		close(fd);
		execl("/bin/true", "true", NULL);
	}
	MUST(waitpid(child, &status, 0) == child);
	MUST(!shm_unlink("/ucx_shm_posix_fork") && !strcmp(at, "child"));
	MUST(left() == before - 8192);
	munmap(at, 4096); /* a part */
	MUST(left() == before - 8192);
	munmap(at + 4096, 4096);
	MUST(left() == before - 8192);
	close(fd);
	MUST(left() == before);
}

/* A child has what its parent has, and counts for nothing: it may become another program, or be killed. */
static void other_programs(void)
{
	unsigned long before = left();
	int fd = shm_open("/ucx_shm_posix_exec", O_RDWR | O_CREAT, 0600);
	char text[8] = "";
	int go[2];
	pid_t child;

	MUST(!ftruncate(fd, 8192) && !pipe(go));
	char *at = map(fd, 8192);
	if (!fork())
		execl("/bin/true", "true", NULL);
	wait_for(1);
	if (!(child = fork()))
		for (;;)
			pause();
	MUST(!kill(child, SIGKILL) && waitpid(child, NULL, 0) == child);
	if (!fork()) { /* what it has of its parent, it uses; what it has of its own, it gives back */
		int own = shm_open("/ucx_shm_posix_exec", O_RDWR, 0), copy = dup(fd);
		MUST(own >= 0 && copy >= 0 && !munmap(at, 4096));
		strcpy(at + 4096, "child");
		*(char *)map(copy, 4096) = 'c';
		exit(0);
	}
	wait_for(1);
	MUST(pread(fd, text, 5, 4096) == 5 && !strcmp(text, "child") && *at == 'c' && left() == before - 8192);
	if (!fork()) { /* it does not move what its parent has mapped */
		MUST(!close(go[1]) && !read(go[0], text, 1) && !close(2));
		MUST(ftruncate(fd, 12288) < 0 && errno == ENOSPC);
		exit(0);
	}
	MUST(!close(fd) && !close(go[1]));
	wait_for(1);
	MUST(!shm_unlink("/ucx_shm_posix_exec") && !strcmp(at + 4096, "child") && !munmap(at, 8192) && left() == before);
}

/* A library has locks of its own around fork. This one is where a file of MPI's could be. The library has been there before ours, if
 * there is one (forklocks.c), or comes later. */
static pthread_mutex_t *of_library;

static void lock_library(void) { MUST(!pthread_mutex_lock(of_library)); }
static void unlock_library(void) { MUST(!pthread_mutex_unlock(of_library)); }

static void forks(void)
{
	char *at = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	pthread_mutex_t **earlier = dlsym(RTLD_DEFAULT, "mutex_of_library");

	alarm(20); /* it hangs or takes no time */
	of_library = (pthread_mutex_t *)(at + 4096);
	MUST(at != MAP_FAILED);
	if (earlier)
		*earlier = of_library;
	else
		MUST(!pthread_atfork(lock_library, unlock_library, unlock_library));
	int fd = shm_open("/ucx_shm_posix_forks", O_RDWR | O_CREAT, 0600);
	MUST(fd >= 0 && !ftruncate(fd, 4096) && !shm_unlink("/ucx_shm_posix_forks"));
	MUST(mmap(at, 4096, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == at);
	MUST(mmap(at + 8192, 4096, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == at + 8192);
	if (!fork())
		exit(0);
	wait_for(1);
	MUST(!munmap(at, 4096) && !close(fd));
}

/* A thread has the lock of the library, as an allocator has its own, and uses memory that lies between files of MPI's, while
 * another thread forks and waits for that lock. */
static char *between;
static atomic_bool *fork_begins;

static void *allocate(void *has_the_lock)
{
	MUST(!pthread_mutex_lock(of_library));
	*(atomic_bool *)has_the_lock = true;
	while (!*fork_begins)
		sched_yield();
	MUST(mmap(between, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == between && !munmap(between, 4096));
	MUST(!pthread_mutex_unlock(of_library));
	return NULL;
}

static void forks_while_another_allocates(void)
{
	char *at = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_mutex_t **lock = dlsym(RTLD_DEFAULT, "mutex_of_library");
	atomic_bool locked = false;
	pthread_t allocator;

	alarm(20); /* it hangs or takes no time */
	fork_begins = dlsym(RTLD_DEFAULT, "fork_begins");
	MUST(at != MAP_FAILED && lock && fork_begins);
	of_library = *lock = (pthread_mutex_t *)(at + 4096);
	between = at + 2 * 4096;
	int fd = shm_open("/ucx_shm_posix_forks", O_RDWR | O_CREAT, 0600);
	MUST(fd >= 0 && !ftruncate(fd, 4096) && !shm_unlink("/ucx_shm_posix_forks"));
	for (int page = 0; page < 4; page += 3)
		MUST(mmap(at + page * 4096, 4096, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == at + page * 4096);
	MUST(!pthread_create(&allocator, NULL, allocate, &locked));
	while (!locked)
		sched_yield();
	if (!fork())
		exit(0);
	wait_for(1);
	MUST(!pthread_join(allocator, NULL) && !close(fd));
}

/* A thread forks while another one opens the device, which lasts until a lease of it is given back. */
static atomic_int device_of_lease = -1, opening;

static void note_opening(int signal) { opening = signal; }

static void *open_slowly(void *nothing)
{
	MUST(shm_open("/ucx_shm_posix_slow", O_RDWR | O_CREAT, 0600) >= 0);
	return nothing;
}

static void *give_back(void *nothing)
{
	usleep(300000);
	MUST(!fcntl(device_of_lease, F_SETLEASE, F_UNLCK));
	return nothing;
}

static void forks_early(const char *device)
{
	pthread_t opener, giver;

	alarm(20); /* it hangs or takes no time */
	MUST(signal(SIGIO, note_opening) != SIG_ERR);
	MUST((device_of_lease = syscall(SYS_openat, AT_FDCWD, device, O_RDWR)) >= 0 && !fcntl(device_of_lease, F_SETLEASE, F_WRLCK));
	MUST(!pthread_create(&opener, NULL, open_slowly, NULL));
	while (!opening)
		usleep(1000);
	MUST(!pthread_create(&giver, NULL, give_back, NULL));
	if (!fork()) {
		alarm(10);
		MUST(shm_open("/ucx_shm_posix_slow", O_RDWR | O_CREAT, 0600) >= 0);
		exit(0);
	}
	wait_for(1);
	MUST(!pthread_join(opener, NULL) && !pthread_join(giver, NULL));
}

/* A program that uses the device itself has its beginning, and MPI the rest. */
static void device(const char *path, size_t programs)
{
	struct stat st;
	int fd = open(path, O_RDWR);

	MUST(fd >= 0 && !fstat(fd, &st) && st.st_size == (off_t)programs);
	MUST(mmap(NULL, programs + 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
	memset(map(fd, programs), 1, programs);
	int file = shm_open("/ucx_shm_posix_large", O_RDWR | O_CREAT, 0600);
	MUST(ftruncate(file, left() + 4096) < 0 && errno == ENOSPC);
	unsigned long most = left();
	MUST(!ftruncate(file, most));
	/* All is promised to this file, though it has no place yet. */
	int other = shm_open("/ucx_shm_posix_other", O_RDWR | O_CREAT, 0600);
	MUST(write(other, "", 1) < 0 && errno == ENOSPC);
	unsigned char *at = map(file, most);
	for (size_t i = 0; i < most; i += 997)
		MUST(at[i] == 0);
}

static void taken(const char *path)
{
	int file = shm_open("/ucx_shm_posix_large", O_RDWR | O_CREAT, 0600);

	MUST(!ftruncate(file, left()));
	MUST(open(path, O_RDWR) < 0 && errno == EBUSY); /* though the file has no place yet */
	map(file, 4096);
	MUST(open(path, O_RDWR) < 0 && errno == EBUSY);
}

/* UCX asks for memory again and again. */
static void no_room(void)
{
	int file = shm_open("/ucx_shm_posix_large", O_RDWR | O_CREAT, 0600);

	for (int i = 0; i < 3; i++)
		MUST(ftruncate(file, left() + 4096) < 0 && errno == ENOSPC);
}

/* ---- locks ---- */

struct shared {
	pthread_mutex_t mutex, recursive, checked, robust;
	pthread_cond_t condition;
	pthread_barrier_t barrier;
	pthread_rwlock_t rwlock;
	sem_t semaphore;
	long counter, turn;
};

static void kind(pthread_mutex_t *m, int type, int robust)
{
	pthread_mutexattr_t a;

	pthread_mutexattr_init(&a);
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_settype(&a, type);
	pthread_mutexattr_setrobust(&a, robust);
	MUST(!pthread_mutex_init(m, &a));
}

static struct shared *locks_of(void)
{
	int fd = shm_open("/ucx_shm_posix_locks", O_RDWR | O_CREAT, 0600);

	MUST(fd >= 0 && !ftruncate(fd, sizeof(struct shared)));
	return map(fd, sizeof(struct shared));
}

static void make_locks(void)
{
	struct shared *s = locks_of();

	kind(&s->mutex, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED);
	kind(&s->recursive, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_STALLED);
	kind(&s->checked, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_STALLED);
	kind(&s->robust, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST);
	MUST(!pthread_cond_init(&s->condition, NULL) && !pthread_barrier_init(&s->barrier, NULL, 2));
	MUST(!pthread_rwlock_init(&s->rwlock, NULL) && !sem_init(&s->semaphore, 1, 0));
}

/* One of two processes of different VMs, me is 0 or 1. */
static void locks(int me)
{
	struct shared *s = locks_of();
	struct timespec soon;

	MUST(pthread_barrier_wait(&s->barrier) <= 0);
	for (int i = 0; i < 2000; i++) {
		pthread_mutex_t *m = i % 3 == 0 ? &s->mutex : i % 3 == 1 ? &s->checked : &s->robust;
		MUST(!pthread_mutex_lock(m) && !pthread_mutex_lock(&s->recursive) && !pthread_mutex_lock(&s->recursive));
		s->counter++;
		MUST(!pthread_mutex_unlock(&s->recursive) && !pthread_mutex_unlock(&s->recursive) && !pthread_mutex_unlock(m));
	}
	MUST(pthread_barrier_wait(&s->barrier) <= 0);
	MUST(s->counter == 4000);
	MUST(!pthread_mutex_lock(&s->checked) && pthread_mutex_lock(&s->checked) == EDEADLK && !pthread_mutex_unlock(&s->checked));
	MUST(pthread_barrier_wait(&s->barrier) <= 0);
	if (me == 0) {
		MUST(!pthread_mutex_lock(&s->checked));
		MUST(!sem_post(&s->semaphore));
		MUST(pthread_barrier_wait(&s->barrier) <= 0);
		MUST(!pthread_mutex_unlock(&s->checked));
	} else {
		MUST(!sem_wait(&s->semaphore) && sem_trywait(&s->semaphore) < 0 && errno == EAGAIN);
		MUST(pthread_mutex_trylock(&s->checked) == EBUSY && pthread_mutex_unlock(&s->checked) == EPERM);
		clock_gettime(CLOCK_REALTIME, &soon);
		soon.tv_nsec = (soon.tv_nsec + 50000000) % 1000000000;
		MUST(pthread_mutex_timedlock(&s->checked, &soon) == ETIMEDOUT);
		MUST(pthread_barrier_wait(&s->barrier) <= 0);
	}
	for (int i = 0; i < 200; i++) { /* in turns */
		MUST(!pthread_mutex_lock(&s->mutex));
		while (s->turn % 2 != me)
			MUST(!pthread_cond_wait(&s->condition, &s->mutex));
		s->turn++;
		MUST(!pthread_cond_broadcast(&s->condition) && !pthread_mutex_unlock(&s->mutex));
	}
	for (int i = 0; i < 500; i++) {
		MUST(!pthread_rwlock_wrlock(&s->rwlock));
		long was = s->counter++;
		MUST(s->counter == was + 1 && !pthread_rwlock_unlock(&s->rwlock));
		MUST(!pthread_rwlock_rdlock(&s->rwlock) && !pthread_rwlock_unlock(&s->rwlock));
	}
	MUST(pthread_barrier_wait(&s->barrier) <= 0);
	MUST(s->counter == 5000 && s->turn == 400);
}

/* A thread of this VM that ends with a robust mutex leaves it to the next. */
static void robust(void)
{
	struct shared *s = locks_of();

	make_locks();
	if (!fork()) {
		MUST(!pthread_mutex_lock(&s->robust));
		_exit(0);
	}
	wait_for(1);
	MUST(pthread_mutex_lock(&s->robust) == EOWNERDEAD);
	MUST(!pthread_mutex_consistent(&s->robust) && !pthread_mutex_unlock(&s->robust));
	MUST(!pthread_mutex_lock(&s->robust) && !pthread_mutex_unlock(&s->robust));
}

/* Threads map and unmap at once, and often get each other's addresses. A mutex that is not known to be in the region is
 * the C library's, whose second word is no VM. */
static void *map_often(void *name)
{
	for (int i = 0; i < 20000; i++) {
		int fd = shm_open(name, O_RDWR | O_CREAT, 0600);

		MUST(fd >= 0 && !ftruncate(fd, 4096));
		pthread_mutex_t *m = map(fd, 4096);
		MUST(!close(fd) && !pthread_mutex_lock(m) && m->__data.__count == 1);
		MUST(!pthread_mutex_unlock(m) && !munmap(m, 4096));
	}
	return NULL;
}

static void threads(void)
{
	static char names[4][40];
	pthread_t t[4];

	for (int i = 0; i < 4; i++) {
		snprintf(names[i], sizeof(names[i]), "/ucx_shm_posix_often%d", i);
		MUST(!pthread_create(&t[i], NULL, map_often, names[i]));
	}
	for (int i = 0; i < 4; i++)
		MUST(!pthread_join(t[i], NULL));
}

/* Waiting by a clock of the caller's choice, where it is our lock and where it is the C library's. */
static void clocks_of(struct shared *s)
{
	struct timespec soon, late;

	clock_gettime(CLOCK_MONOTONIC, &soon);
	late = soon;
	late.tv_sec += 10;
	MUST(!pthread_mutex_clocklock(&s->mutex, CLOCK_MONOTONIC, &late));
	MUST(pthread_cond_clockwait(&s->condition, &s->mutex, CLOCK_MONOTONIC, &soon) == ETIMEDOUT);
	MUST(!pthread_mutex_unlock(&s->mutex) && !pthread_mutex_lock(&s->mutex));
	MUST(pthread_mutex_trylock(&s->mutex) == EBUSY && pthread_mutex_clocklock(&s->mutex, CLOCK_MONOTONIC, &soon) == ETIMEDOUT);
	MUST(!pthread_rwlock_clockrdlock(&s->rwlock, CLOCK_MONOTONIC, &late));
	MUST(pthread_rwlock_clockwrlock(&s->rwlock, CLOCK_MONOTONIC, &soon) == ETIMEDOUT && !pthread_rwlock_unlock(&s->rwlock));
	MUST(!pthread_rwlock_clockwrlock(&s->rwlock, CLOCK_MONOTONIC, &late) && !pthread_rwlock_unlock(&s->rwlock));
	MUST(sem_clockwait(&s->semaphore, CLOCK_MONOTONIC, &soon) < 0 && errno == ETIMEDOUT);
	MUST(!sem_post(&s->semaphore) && !sem_clockwait(&s->semaphore, CLOCK_MONOTONIC, &late));
	MUST(!pthread_mutex_unlock(&s->mutex));
}

static void clocks(void)
{
	static struct shared here = {.mutex = PTHREAD_MUTEX_INITIALIZER, .condition = PTHREAD_COND_INITIALIZER, .rwlock = PTHREAD_RWLOCK_INITIALIZER};

	make_locks();
	clocks_of(locks_of());
	clocks_of(&here);
}

/* A condition variable of the program's own, with which it waits by functions that are not all ours. */
static struct shared own = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void *signal_own(void *nothing)
{
	MUST(!pthread_mutex_lock(&own.mutex));
	own.turn = 1;
	MUST(!pthread_cond_signal(&own.condition) && !pthread_cond_broadcast(&own.condition) && !pthread_mutex_unlock(&own.mutex));
	return nothing;
}

static void conditions(void)
{
	struct timespec late;
	pthread_t t;

	locks_of();
	clock_gettime(CLOCK_REALTIME, &late);
	late.tv_sec += 10;
	MUST(!pthread_cond_init(&own.condition, NULL) && !pthread_mutex_lock(&own.mutex) && !pthread_create(&t, NULL, signal_own, NULL));
	while (!own.turn)
		MUST(!pthread_cond_timedwait(&own.condition, &own.mutex, &late));
	MUST(!pthread_mutex_unlock(&own.mutex) && !pthread_join(t, NULL) && !pthread_cond_destroy(&own.condition));
}

/* Another library's file system keeps its files, and MPI has its own. */
static void users_files(void)
{
	typedef int old_stat(int version, const char *path, struct stat *st);
	typedef int old_fstat(int version, int fd, struct stat *st);
	int fd = shm_open("/ucx_shm_posix_user", O_RDWR | O_CREAT, 0600);
	static const char *const old[] = {"__xstat", "__xstat64", "__lxstat", "__lxstat64"}, *const old_fd[] = {"__fxstat", "__fxstat64"};
	struct stat64 st64;
	struct stat st;
	void *at;

	MUST(!ftruncate(fd, 8192) && !fstat(fd, &st) && st.st_size == 8192);
	MUST(!stat("/userfs", &st) && st.st_size == 4096 && !stat64("/userfs", &st64) && st64.st_size == 4096);
	MUST(!lstat("/userfs", &st) && st.st_size == 4096 && !lstat64("/userfs", &st64) && st64.st_size == 4096);
	MUST(!fstat(900, &st) && st.st_size == 4096 && !fstat64(900, &st64) && st64.st_size == 4096);
	MUST(!fstatat(AT_FDCWD, "/userfs", &st, 0) && st.st_size == 4096 && !fstatat64(AT_FDCWD, "/userfs", &st64, 0));
	MUST(!fstatat(900, "", &st, AT_EMPTY_PATH) && !fstatat64(900, "", &st64, AT_EMPTY_PATH) && st64.st_size == 4096);
	for (int i = 0; i < 4; i++)
		MUST(!((old_stat *)dlsym(RTLD_DEFAULT, old[i]))(1, "/userfs", &st) && st.st_size == 4096);
	for (int i = 0; i < 2; i++)
		MUST(!((old_fstat *)dlsym(RTLD_DEFAULT, old_fd[i]))(1, 900, &st) && st.st_size == 4096);
	MUST(stat("/usersfs", &st) < 0 && errno == ENOENT && ((old_stat *)dlsym(RTLD_DEFAULT, "__xstat"))(1, "/usersfs", &st) < 0);

	at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, 900, 0);
	MUST(at != MAP_FAILED && !strcmp(at, "userfs"));
	MUST(mmap64(NULL, 4096, PROT_READ, MAP_SHARED, 900, 0) == at && (void *)syscall(SYS_mmap, NULL, 4096, PROT_READ, MAP_SHARED, 900, 0) == at);
	MUST(!syscall(SYS_fsync, 900) && syscall(SYS_fsync, 901) < 0 && errno == EBADF);
	MUST((at = map(fd, 8192)) && !munmap(at, 8192) && syscall(SYS_getpid) == getpid());
	at = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(at != MAP_FAILED && !munmap(at, 4096) && !*(int *)dlsym(RTLD_DEFAULT, "unmapped"));
}

/* UCX looks for a neighbour by the number of its process. Others look whether a process of that number has ended. */
static const char *const nobody = "/proc/4194304/stat"; /* Linux's numbers are below 2^22 */

static void neighbours(const char *library)
{
	void *ucs = dlopen(library, RTLD_NOW);
	int (*ucs_open)(const char *) = (int (*)(const char *))dlsym(ucs, "ucs_open"), fd;
	FILE *(*ucs_fopen)(const char *) = (FILE * (*)(const char *))dlsym(ucs, "ucs_fopen");
	char text[200] = "";

	MUST(ucs && (fd = ucs_open(nobody)) >= 0 && read(fd, text, sizeof(text) - 1) > 0 && !strncmp(text, "4194304 (rank) R ", 17));
	MUST(ucs_fopen(nobody) && (fd = ucs_open("/proc/self/stat")) >= 0 && read(fd, text, 20) > 0 && atoi(text) == getpid());
	MUST(open(nobody, O_RDONLY) < 0 && errno == ENOENT && !fopen(nobody, "r") && errno == ENOENT);
	MUST(shm_open("/ucx_shm_posix_here", O_RDWR | O_CREAT, 0600) >= 0 && open(nobody, O_RDONLY) < 0);
}

/* UCX may have no library of its own. */
static void static_ucx(void)
{
	MUST(shm_open("/vader_segment.here", O_RDWR | O_CREAT, 0600) >= 0 && open(nobody, O_RDONLY) < 0 && errno == ENOENT);
	MUST(shm_open("/ucx_shm_posix_here", O_RDWR | O_CREAT, 0600) >= 0 && open(nobody, O_RDONLY) >= 0);
}

/* Files of another VM. */
static const char *const peers[] = {"/ucx_shm_posix_peer", "/vader_segment.peer"};

static void make_peers(void)
{
	for (int i = 0; i < 2; i++)
		MUST(!ftruncate(shm_open(peers[i], O_RDWR | O_CREAT, 0600), 4096));
}

/* The program begins to speak PMI over pmi[0]. The relay is at the other end. */
static void begin_pmi(int pmi[2])
{
	char number[24];
	const char *hello = "cmd=init pmi_version=1 pmi_subversion=1\n";
	struct stat st;

	MUST(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pmi) && !fstat(pmi[0], &st));
	snprintf(number, sizeof(number), "%lu", (unsigned long)st.st_ino);
	MUST(!setenv("SLURMV_PMI_SOCKET", number, 1));
	MUST(write(pmi[0], hello, strlen(hello)) == (ssize_t)strlen(hello));
}

/* Whether the machine's boot id is that of the job's VMs on the node. */
static bool one_machine(void)
{
	char id[48] = "";

	MUST(read(open("/proc/sys/kernel/random/boot_id", O_RDONLY), id, sizeof(id) - 1) > 0);
	return !strcmp(id, "5e1f5e1f-0000-4000-8000-000000000001\n");
}

/* The relay hears of the transport while the program speaks PMI. What has the descriptor's number later is not the relay's. */
static void reports(void)
{
	char text[128] = "", name[] = "/tmp/slurmv-test-XXXXXX";
	struct stat st;
	int pmi[2];

	begin_pmi(pmi);
	map(shm_open(peers[0], O_RDWR, 0), 4096);
	MUST(read(pmi[1], text, sizeof(text) - 1) > 0 && strstr(text, "ready=1") && strstr(text, "peer=UCX") && one_machine());

	MUST(!close(pmi[0]) && mkstemp(name) == pmi[0] && !unlink(name));
	map(shm_open(peers[1], O_RDWR, 0), 4096);
	MUST(!fstat(pmi[0], &st) && st.st_size == 0);
}

/* Whether the relay has heard of MPICH's own transport. */
static bool heard_of_mpich(int pmi)
{
	char text[128] = "";

	MUST(read(pmi, text, sizeof(text) - 1) >= 0 || errno == EAGAIN);
	return strstr(text, "peer=MPICH");
}

/* MPICH's ranks of a node share one file. Its maker hears of the others when it removes the file. With a library, that is UCX. */
static void one_file(const char *library)
{
	int pmi[2], fd = shm_open("/mpich_shar_tmp1", O_RDWR | O_CREAT, 0600);

	begin_pmi(pmi);
	MUST(!*library || dlopen(library, RTLD_NOW));
	MUST(!ftruncate(fd, 4096) && map(fd, 4096) && shm_open("/mpich_shar_tmp2", O_RDWR | O_CREAT, 0600) >= 0);
	MUST(!shm_unlink("/mpich_shar_tmp2") && !heard_of_mpich(pmi[1])); /* nobody else had it */
	while ((fd = shm_open("/mpich_shar_tmp3", O_RDWR, 0)) < 0)
		usleep(1000);
	MUST(!shm_unlink("/mpich_shar_tmp1") && heard_of_mpich(pmi[1]) == !*library);
}

static void another_opens_it(void)
{
	int fd;

	while ((fd = shm_open("/mpich_shar_tmp1", O_RDWR, 0)) < 0)
		usleep(1000);
	MUST(shm_open("/mpich_shar_tmp3", O_RDWR | O_CREAT, 0600) >= 0);
}

/* A rank that cannot open the device is not ready, and its machine is the VM. */
static void not_ready(void)
{
	char text[128] = "";
	int pmi[2];

	begin_pmi(pmi);
	MUST(read(pmi[1], text, sizeof(text) - 1) > 0 && !strstr(text, "ready=1") && !one_machine());
}

/* What the C library of the image has not got fails; what is MPI's does not need it. */
static void missing_functions(void)
{
	struct shared *s = locks_of();
	sem_t semaphore;

	MUST(shm_open("/slurmv-test-of-no-mpi", O_RDWR | O_CREAT, 0600) < 0 && errno == ENOSYS);
	errno = 0;
	MUST(shm_unlink("/slurmv-test-of-no-mpi") < 0 && errno == ENOSYS);
	errno = 0;
	MUST(sem_init(&semaphore, 0, 1) < 0 && errno == ENOSYS);
	MUST(!sem_init(&s->semaphore, 1, 1) && !sem_wait(&s->semaphore));
}

/* UCX calls the kernel itself, past mmap. */
static void system_calls(void)
{
	int fd = shm_open("/ucx_shm_posix_call", O_RDWR | O_CREAT, 0600);

	MUST(!ftruncate(fd, 4096));
	strcpy(map(fd, 4096), "here");
	char *at = (char *)syscall(SYS_mmap, NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	MUST(at != MAP_FAILED && !strcmp(at, "here") && !syscall(SYS_munmap, at, 4096));
}

int main(int argc, char **argv)
{
	const char *part = argv[1];

	alarm(120); /* a busy machine may give it little of a CPU */
	if (!strcmp(part, "files"))
		files();
	else if (!strcmp(part, "pieces"))
		pieces();
	else if (!strcmp(part, "descriptors"))
		descriptors();
	else if (!strcmp(part, "stale"))
		stale();
	else if (!strcmp(part, "refused"))
		refused();
	else if (!strcmp(part, "threads"))
		threads();
	else if (!strcmp(part, "clocks"))
		clocks();
	else if (!strcmp(part, "conditions"))
		conditions();
	else if (!strcmp(part, "children"))
		children();
	else if (!strcmp(part, "other_programs"))
		other_programs();
	else if (!strcmp(part, "forks-while-another-allocates"))
		forks_while_another_allocates();
	else if (!strcmp(part, "forks"))
		forks();
	else if (!strcmp(part, "forks-early"))
		forks_early(argv[2]);
	else if (!strcmp(part, "device"))
		device(argv[2], atol(argv[3]));
	else if (!strcmp(part, "taken"))
		taken(argv[2]);
	else if (!strcmp(part, "no-room"))
		no_room();
	else if (!strcmp(part, "make-locks"))
		make_locks();
	else if (!strcmp(part, "locks"))
		locks(atoi(argv[2]));
	else if (!strcmp(part, "robust"))
		robust();
	else if (!strcmp(part, "users-files"))
		users_files();
	else if (!strcmp(part, "neighbours"))
		neighbours(argv[2]);
	else if (!strcmp(part, "static-ucx"))
		static_ucx();
	else if (!strcmp(part, "make-peers"))
		make_peers();
	else if (!strcmp(part, "reports"))
		reports();
	else if (!strcmp(part, "one-file"))
		one_file(argv[2]);
	else if (!strcmp(part, "another-opens-it"))
		another_opens_it();
	else if (!strcmp(part, "not-ready"))
		not_ready();
	else if (!strcmp(part, "missing"))
		missing_functions();
	else if (!strcmp(part, "calls"))
		system_calls();
	else
		return 2;
	return argc < 2;
}
