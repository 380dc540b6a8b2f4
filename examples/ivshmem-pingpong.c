/*
 * Ping-pong between two ranks that share memory, over that memory and over TCP:
 * half of the round trip, and the bandwidth that this makes, by message size.
 *
 * The two are the first of the ranks that have the memory of this run; start it
 * with one rank in each of two VMs of a node. Any MPI library could do over this
 * memory what send_shm and receive_shm do.
 */
#define _GNU_SOURCE
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include <slurmv_ivshmem.h>

/* Messages go in parts, so that one is copied out while the next is copied in. */
enum { LARGEST = 1 << 22, PART = 8 << 10 };

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/*
 * The memory is divided into two rings, one for each direction, behind a page by
 * which the ranks find each other. It is zero at the start.
 */
struct ring {
	_Alignas(64) _Atomic uint64_t written; /* bytes, ever; only the sender writes it */
	_Alignas(64) _Atomic uint64_t read;    /* only the receiver */
	_Alignas(64) char data[];
};

struct meeting {
	char host[256]; /* where rank 0 listens */
	_Atomic uint32_t port;
	_Atomic uint32_t here[2];
};

static struct slurmv_ivshmem shm;
static struct ring *out, *in;
static size_t capacity;
static int connection;

static struct ring *ring(int number)
{
	return (struct ring *)((char *)shm.base + 4096 + number * (sizeof(struct ring) + capacity));
}

static void send_shm(const char *message, size_t size)
{
	uint64_t written = atomic_load_explicit(&out->written, memory_order_relaxed);

	while (size > 0) {
		size_t at = written % capacity, n = size < PART ? size : PART;

		if (n > capacity - at)
			n = capacity - at;
		while (written + n - atomic_load_explicit(&out->read, memory_order_acquire) > capacity)
			;
		memcpy(out->data + at, message, n);
		message += n, size -= n, written += n;
		atomic_store_explicit(&out->written, written, memory_order_release);
	}
}

static void receive_shm(char *message, size_t size)
{
	uint64_t done = atomic_load_explicit(&in->read, memory_order_relaxed);

	while (size > 0) {
		size_t at = done % capacity, n;

		while ((n = atomic_load_explicit(&in->written, memory_order_acquire) - done) == 0)
			;
		if (n > PART)
			n = PART;
		if (n > size)
			n = size;
		if (n > capacity - at)
			n = capacity - at;
		memcpy(message, in->data + at, n);
		message += n, size -= n, done += n;
		atomic_store_explicit(&in->read, done, memory_order_release);
	}
}

static void send_tcp(const char *message, size_t size)
{
	while (size > 0) {
		ssize_t n = send(connection, message, size, 0);

		if (n < 0)
			die("send");
		message += n, size -= n;
	}
}

static void receive_tcp(char *message, size_t size)
{
	while (size > 0) {
		ssize_t n = recv(connection, message, size, 0);

		if (n == 0)
			errno = ECONNRESET;
		if (n <= 0)
			die("receive");
		message += n, size -= n;
	}
}

static const struct transport {
	const char *name;
	void (*send)(const char *, size_t);
	void (*receive)(char *, size_t);
} transports[] = {{"ivshmem", send_shm, receive_shm}, {"tcp", send_tcp, receive_tcp}};

static int listen_for_peer(struct meeting *meeting)
{
	struct sockaddr_in6 any = {.sin6_family = AF_INET6};
	socklen_t length = sizeof any;
	int listener = socket(AF_INET6, SOCK_STREAM, 0), fd;

	if (listener < 0 || bind(listener, (struct sockaddr *)&any, length) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&any, &length))
		die("listen");
	gethostname(meeting->host, sizeof meeting->host - 1);
	atomic_store(&meeting->port, ntohs(any.sin6_port));
	fd = accept(listener, NULL, NULL);
	if (fd < 0)
		die("accept");
	close(listener);
	return fd;
}

static int connect_to_peer(struct meeting *meeting)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
	char port[16];
	int fd, failed;

	while (!atomic_load(&meeting->port))
		;
	snprintf(port, sizeof port, "%u", atomic_load(&meeting->port));
	failed = getaddrinfo(meeting->host, port, &hints, &found);
	if (failed) {
		fprintf(stderr, "%s: %s\n", meeting->host, gai_strerror(failed));
		exit(1);
	}
	fd = socket(found->ai_family, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen))
		die("connect");
	freeaddrinfo(found);
	return fd;
}

/* Both ranks are here; then they are connected by TCP, too. */
static void meet(int me)
{
	struct meeting *meeting = shm.base;
	int now = 1;

	capacity = (shm.size - 4096) / 2 / 64 * 64 - sizeof(struct ring);
	out = ring(me), in = ring(!me);
	atomic_store(&meeting->here[me], 1);
	while (!atomic_load(&meeting->here[!me]))
		;
	connection = me == 0 ? listen_for_peer(meeting) : connect_to_peer(meeting);
	setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &now, sizeof now);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* Message i of its size; what arrives is compared with it before anything is measured. */
static void fill(char *message, size_t size, unsigned i)
{
	for (size_t k = 0; k < size; k++)
		message[k] = (char)(k * 31 + k / 251 + i * 7 + 1);
}

static char sent[LARGEST], received[LARGEST];

static void check(const struct transport *t, int me, size_t size)
{
	for (unsigned i = 0; i < 4; i++) {
		fill(sent, size, i);
		if (me == 0)
			t->send(sent, size);
		t->receive(received, size);
		if (me == 1)
			t->send(received, size);
		if (memcmp(sent, received, size)) {
			fprintf(stderr, "a message of %zu bytes over %s arrived damaged\n", size, t->name);
			exit(1);
		}
	}
}

static void bounce(const struct transport *t, int me, size_t size, int times)
{
	while (times-- > 0) {
		if (me == 0)
			t->send(sent, size);
		t->receive(received, size);
		if (me == 1)
			t->send(received, size);
	}
}

/* The best of some series, in seconds for one message: what makes the others worse
 * is what else the machine has to do. */
static double best_of(int series, const struct transport *t, int me, size_t size, int times)
{
	double best = 1e9;

	while (series-- > 0) {
		double took, began = now();

		bounce(t, me, size, times);
		took = (now() - began) / times / 2;
		best = took < best ? took : best;
	}
	return best;
}

/* A series takes long enough to be measured. How many messages that is, rank 0 finds
 * out by trying, and tells the other. */
static double half_round_trip(const struct transport *t, int me, size_t size)
{
	const double series = 0.02;
	double once = best_of(10, t, me, size, 4);
	int32_t times = (int32_t)(series / 2 / once);

	times = times < 2 ? 2 : times > 20000 ? 20000 : times;
	if (me == 0)
		t->send((char *)&times, sizeof times);
	else
		t->receive((char *)&times, sizeof times);
	return best_of(25, t, me, size, times);
}

static void measure(int me, size_t size)
{
	if (me == 0)
		printf("%8zu", size);
	for (size_t i = 0; i < sizeof transports / sizeof *transports; i++) {
		const struct transport *t = &transports[i];
		double seconds;

		check(t, me, size);
		seconds = half_round_trip(t, me, size);
		if (me == 0)
			printf("  %12.2f  %12.1f", seconds * 1e6, size / seconds / 1e6);
	}
	if (me == 0) {
		printf("\n");
		fflush(stdout);
	}
}

int main(void)
{
	const char *rank = getenv("SLURM_PROCID");
	int first = slurmv_ivshmem_next_peer(-1), second = slurmv_ivshmem_next_peer(first), me;

	if (slurmv_ivshmem_open(&shm)) {
		perror("no shared memory (was the job submitted with --ivshmem=1?)");
		return 1;
	}
	if (!rank || second < 0) {
		fprintf(stderr, "two ranks with the same memory are needed: use -n 2, and two VMs on one node\n");
		return 1;
	}
	me = atoi(rank) == first ? 0 : atoi(rank) == second ? 1 : 2;
	if (me > 1)
		return 0;
	meet(me);
	if (me == 0)
		printf("# half round trip (us) and bandwidth (MB/s) of messages\n# %6s  %12s  %12s  %12s  %12s\n",
		       "bytes", "ivshmem us", "ivshmem MB/s", "tcp us", "tcp MB/s");
	for (size_t size = 1; size <= LARGEST; size *= 2)
		measure(me, size);
	slurmv_ivshmem_close(&shm);
	return 0;
}
