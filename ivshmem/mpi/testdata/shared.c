/* What programs do with files of MPI's, each part by its name. Says nothing if all is right. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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
	unsigned char *at = map(file, most);
	for (size_t i = 0; i < most; i += 997)
		MUST(at[i] == 0);
}

static void taken(const char *path)
{
	int file = shm_open("/ucx_shm_posix_large", O_RDWR | O_CREAT, 0600);

	MUST(!ftruncate(file, left()));
	MUST(open(path, O_RDWR) < 0 && errno == EBUSY);
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

	alarm(20);
	if (!strcmp(part, "files"))
		files();
	else if (!strcmp(part, "descriptors"))
		descriptors();
	else if (!strcmp(part, "children"))
		children();
	else if (!strcmp(part, "device"))
		device(argv[2], atol(argv[3]));
	else if (!strcmp(part, "taken"))
		taken(argv[2]);
	else if (!strcmp(part, "make-locks"))
		make_locks();
	else if (!strcmp(part, "locks"))
		locks(atoi(argv[2]));
	else if (!strcmp(part, "robust"))
		robust();
	else if (!strcmp(part, "calls"))
		system_calls();
	else
		return 2;
	return argc < 2;
}
