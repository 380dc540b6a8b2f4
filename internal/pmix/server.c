//go:build ignore

#define _GNU_SOURCE

#include "server.h"

#include "fence.h"
#include "local.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static const struct libpmix *pmix;
static const struct placement *placement;
static pmix_nspace_t job;

/* What the library has asked for, in its own thread. server_run does it: a fence, or else to tell that a program has
 * finalized. */
struct request {
	struct request *next;
	struct local *finalized;
	pmix_op_cbfunc_t told;
	bool gather;
	char *data;
	size_t size;
	pmix_modex_cbfunc_t done;
	void *done_data;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct request *first, **last = &first;
static int wake = -1;

static void enqueue(struct request *r)
{
	pthread_mutex_lock(&lock);
	*last = r;
	last = &r->next;
	pthread_mutex_unlock(&lock);
	eventfd_write(wake, 1);
}

static struct request *dequeue(void)
{
	pthread_mutex_lock(&lock);
	struct request *r = first;
	if (r && !(first = r->next))
		last = &first;
	pthread_mutex_unlock(&lock);
	return r;
}

/* What the library asks of a resource manager. */

static pmix_status_t connected(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t done, void *data)
{
	(void)object, (void)done, (void)data;
	pmi_joined(&local_of(proc->rank)->pmi);
	return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t finalized(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t done, void *data)
{
	struct request *r;

	(void)object;
	if (!done) /* the program has ended without it, as some versions say so */
		return PMIX_OPERATION_SUCCEEDED;
	r = calloc(1, sizeof(*r));
	*r = (struct request){.finalized = local_of(proc->rank), .told = done, .done_data = data};
	enqueue(r);
	return PMIX_SUCCESS;
}

static pmix_status_t aborted(const pmix_proc_t *proc, void *object, int status, const char message[], pmix_proc_t procs[], size_t n,
			     pmix_op_cbfunc_t done, void *data)
{
	(void)object, (void)message, (void)procs, (void)n, (void)done, (void)data;
	pmi_abort(&local_of(proc->rank)->pmi, status);
	return PMIX_OPERATION_SUCCEEDED;
}

static bool is_true(const pmix_info_t *info)
{
	return info->value.type != PMIX_BOOL || info->value.data.flag;
}

/* How many ranks the processes are; each is a rank, or all of the job. */
static int count(const pmix_proc_t procs[], size_t n)
{
	int ranks = 0;

	for (size_t i = 0; i < n; i++)
		ranks = procs[i].rank == PMIX_RANK_WILDCARD ? placement->ranks : ranks + 1;
	return ranks;
}

/* Whether all of them are in this VM. */
static bool are_here(const pmix_proc_t procs[], size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (procs[i].rank == PMIX_RANK_WILDCARD ? placement->vms > 1 : !local_of(procs[i].rank))
			return false;
	return true;
}

/* The library calls this when all of them that are in this VM have entered; data are what they have to say. */
static pmix_status_t fenced(const pmix_proc_t procs[], size_t n, const pmix_info_t info[], size_t n_info, char *data, size_t size,
			    pmix_modex_cbfunc_t done, void *done_data)
{
	struct request *r;

	if (are_here(procs, n)) {
		done(PMIX_SUCCESS, data, size, done_data, free, data);
		return PMIX_SUCCESS;
	}
	if (count(procs, n) != placement->ranks)
		return PMIX_ERR_NOT_SUPPORTED; /* PMI has barriers of all ranks only */
	r = calloc(1, sizeof(*r));
	*r = (struct request){.data = data, .size = size, .done = done, .done_data = done_data};
	for (size_t i = 0; i < n_info; i++)
		r->gather |= !strcmp(info[i].key, PMIX_COLLECT_DATA) && is_true(&info[i]);
	enqueue(r);
	return PMIX_SUCCESS;
}

/* What a rank of this VM has put, the library has, whatever its scope; of other VMs', all that a fence gathered. So what
 * it asks for is not there. */
static pmix_status_t get_from_other(const pmix_proc_t *proc, const pmix_info_t info[], size_t n, pmix_modex_cbfunc_t done, void *done_data)
{
	(void)proc, (void)info, (void)n, (void)done, (void)done_data;
	return PMIX_ERR_NOT_FOUND;
}

static pmix_status_t spawn(const pmix_proc_t *proc, const pmix_info_t info[], size_t n, const void *apps, size_t n_apps, void *done,
			   void *done_data)
{
	(void)proc, (void)info, (void)n, (void)apps, (void)n_apps, (void)done, (void)done_data;
	fprintf(stderr, "slurm-v: MPI cannot spawn processes in VMs: start all ranks with slurm-v-run, or use slurm-v-run --launcher=ssh mpirun …\n");
	return PMIX_ERR_NOT_SUPPORTED;
}

/* What the library is told when a request of it has been done. */
struct answer {
	pmix_op_cbfunc_t done;
	void *object;
	pmix_status_t status;
};

static void *give(void *answer)
{
	struct answer *a = answer;

	a->done(a->status, a->object);
	free(a);
	return NULL;
}

/* Answers from a thread of its own: libpmix 4.2 asks with a lock that the answer takes, and server_run may wait in a fence. */
static void answer_later(pmix_op_cbfunc_t done, void *object, pmix_status_t status)
{
	struct answer *a = malloc(sizeof(*a));
	pthread_t thread;

	*a = (struct answer){done, object, status};
	if (!pthread_create(&thread, NULL, give, a))
		pthread_detach(thread);
}

/* Open MPI 5 has the server say its explanations of errors. What the server says, the guest agent passes on. */
static void logged(const pmix_proc_t *proc, const pmix_info_t data[], size_t n, const pmix_info_t hints[], size_t n_hints,
		   pmix_op_cbfunc_t done, void *object)
{
	pmix_status_t status = PMIX_ERR_NOT_SUPPORTED;

	(void)proc, (void)hints, (void)n_hints;
	for (size_t i = 0; i < n; i++)
		if (!strcmp(data[i].key, PMIX_LOG_STDERR) && data[i].value.type == PMIX_STRING) {
			fputs(data[i].value.data.string, stderr);
			status = PMIX_SUCCESS;
		}
	answer_later(done, object, status);
}

/* The library itself removes the files that ranks register to be removed when they are killed, such as those of Open MPI's
 * shared memory, but only if there is this function. It is called for everything else. */
static pmix_status_t control(const pmix_proc_t *proc, const pmix_proc_t targets[], size_t n_targets, const pmix_info_t info[], size_t n,
			     void *done, void *data)
{
	(void)proc, (void)targets, (void)n_targets, (void)info, (void)n, (void)done, (void)data;
	return PMIX_ERR_NOT_SUPPORTED;
}

static pmix_server_module_t module = {
	.client_connected = connected,
	.client_finalized = finalized,
	.abort = aborted,
	.fence_nb = fenced,
	.direct_modex = get_from_other,
	.spawn = spawn,
	.log = logged,
	.job_control = control,
};

/* What the program is told of the job. */

struct list {
	pmix_info_t *info;
	size_t n;
};

static pmix_value_t *add(struct list *l, const char *key, uint16_t type)
{
	pmix_info_t *added;

	l->info = realloc(l->info, (l->n + 1) * sizeof(*l->info));
	added = memset(&l->info[l->n++], 0, sizeof(*l->info));
	strcpy(added->key, key);
	added->value.type = type;
	return &added->value;
}

static void add_number(struct list *l, const char *key, uint32_t number)
{
	add(l, key, PMIX_UINT32)->data.uint32 = number;
}

static void add_small(struct list *l, const char *key, uint16_t number)
{
	add(l, key, PMIX_UINT16)->data.uint16 = number;
}

static void add_rank(struct list *l, const char *key, pmix_rank_t rank)
{
	add(l, key, PMIX_PROC_RANK)->data.rank = rank;
}

static void add_text(struct list *l, const char *key, char *text)
{
	add(l, key, PMIX_STRING)->data.string = text;
}

static void add_process(struct list *l, const struct placement *p, int rank)
{
	struct list about = {0};
	pmix_data_array_t *array = calloc(1, sizeof(*array));
	int local = placement_local_rank(p, rank);

	add_rank(&about, PMIX_RANK, rank);
	add_number(&about, PMIX_APPNUM, 0);
	add_rank(&about, PMIX_GLOBAL_RANK, rank);
	add_rank(&about, PMIX_APP_RANK, rank);
	add_small(&about, PMIX_LOCAL_RANK, local);
	add_small(&about, PMIX_NODE_RANK, local);
	add_number(&about, PMIX_NODEID, p->vm[rank]);
	add_text(&about, PMIX_HOSTNAME, p->name[p->vm[rank]]);
	*array = (pmix_data_array_t){.type = PMIX_INFO, .size = about.n, .array = about.info};
	add(l, PMIX_PROC_INFO_ARRAY, PMIX_DATA_ARRAY)->data.darray = array;
}

static struct list describe(const struct placement *p)
{
	struct list l = {0};
	int vm = p->here, local = placement_local_size(p, vm);

	add_text(&l, PMIX_NODE_MAP, placement_node_map(p));
	add_text(&l, PMIX_PROC_MAP, placement_proc_map(p));
	add_text(&l, PMIX_JOBID, job);
	add_number(&l, PMIX_UNIV_SIZE, p->ranks);
	add_number(&l, PMIX_JOB_SIZE, p->ranks);
	add_number(&l, PMIX_MAX_PROCS, p->ranks);
	add_number(&l, PMIX_APP_SIZE, p->ranks);
	add_number(&l, PMIX_NUM_NODES, p->vms);
	add_rank(&l, PMIX_APPLDR, 0);
	add_rank(&l, PMIX_NPROC_OFFSET, 0);
	add_number(&l, PMIX_NODE_SIZE, local);
	add_number(&l, PMIX_LOCAL_SIZE, local);
	add_text(&l, PMIX_LOCAL_PEERS, placement_peers(p, vm));
	add_rank(&l, PMIX_LOCALLDR, p->leader[vm]);
	for (int rank = 0; rank < p->ranks; rank++)
		add_process(&l, p, rank);
	return l;
}

/* Registrations end in the library's thread. */
struct wait {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool done;
	pmix_status_t status;
};

static void ended(pmix_status_t status, void *data)
{
	struct wait *w = data;

	pthread_mutex_lock(&w->lock);
	w->status = status;
	w->done = true;
	pthread_cond_signal(&w->ended);
	pthread_mutex_unlock(&w->lock);
}

static pmix_status_t await(struct wait *w, pmix_status_t begun)
{
	if (begun == PMIX_OPERATION_SUCCEEDED)
		return PMIX_SUCCESS;
	if (begun != PMIX_SUCCESS)
		return begun;
	pthread_mutex_lock(&w->lock);
	while (!w->done)
		pthread_cond_wait(&w->ended, &w->lock);
	pthread_mutex_unlock(&w->lock);
	return w->status;
}

static pmix_status_t register_job(void)
{
	struct wait w = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0};
	struct list about = describe(placement);

	return await(&w, pmix->register_nspace(job, local_count(), about.info, about.n, ended, &w));
}

static pmix_proc_t process(int rank)
{
	pmix_proc_t p = {.rank = rank};

	strcpy(p.nspace, job);
	return p;
}

static pmix_status_t register_rank(int rank)
{
	struct wait w = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0};
	pmix_proc_t p = process(rank);

	return await(&w, pmix->register_client(&p, getuid(), getgid(), NULL, ended, &w));
}

/* As Slurm names it. */
static void name_job(void)
{
	const char *id = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");

	snprintf(job, sizeof(job), "slurm.pmix.%s.%s", id ? id : "0", step ? step : "0");
}

static void check(const char *what, pmix_status_t status)
{
	if (!status)
		return;
	fprintf(stderr, "slurm-v: --mpi=pmix: %s: the image's PMIx library says: %s\n", what, pmix->error_string(status));
	exit(1);
}

/* The library shall keep what it knows in its own memory, not in files that programs map: a server that is killed would
 * leave them. */
static void settle(void)
{
	setenv("PMIX_MCA_gds", "hash", 0);
	setenv("PMIX_MCA_psec", "native", 0);
}

void server_begin(const struct libpmix *library, const struct placement *p)
{
	pmix = library;
	placement = p;
	settle();
	name_job();
	wake = eventfd(0, EFD_CLOEXEC);
	check("start a PMIx server", pmix->init(&module, NULL, 0));
	check("describe the job to PMIx", register_job());
	for (int i = 0; i < local_count(); i++)
		check("describe a rank to PMIx", register_rank(local_at(i)->pmi.rank));
}

char **server_environment(int rank)
{
	pmix_proc_t p = process(rank);
	char **env = NULL;

	check("ask PMIx for the program's environment", pmix->setup_fork(&p, &env));
	return env;
}

/* A fence that lacks a rank is not answered: Slurm ends the run for that rank, and MPI's error messages would only hide why. */
static void perform(struct request *r)
{
	size_t size;
	char *all = NULL;

	if (r->told) {
		pmi_left(&r->finalized->pmi);
		r->told(PMIX_SUCCESS, r->done_data);
	} else if (fence(placement, r->gather, r->data, r->size, &all, &size))
		r->done(PMIX_SUCCESS, all, size, r->done_data, free, all);
	else
		free(all);
	free(r->data);
	free(r);
}

/* Waits until there are requests, or the guest agent's socket ends. Returns false at the end. */
static bool await_requests(int agent)
{
	struct pollfd both[] = {{wake, POLLIN, 0}, {agent, POLLIN, 0}};
	eventfd_t count;

	while (poll(both, 2, -1) < 0 && errno == EINTR)
		;
	if (both[0].revents)
		eventfd_read(wake, &count);
	return !both[1].revents;
}

/* How long libpmix may take to end, in seconds. SIGALRM ends the server then; nobody needs it any more. */
enum { FINALIZE_PATIENCE = 10 };

void server_run(int agent)
{
	struct request *r;

	while (await_requests(agent))
		while ((r = dequeue()))
			perform(r);
	alarm(FINALIZE_PATIENCE); /* on a busy machine, libpmix has waited for ever there after an abort */
	pmix->finalize();
}
