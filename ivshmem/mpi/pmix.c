//go:build ignore

#include "../../internal/pmix/abi.h"
#include "files.h"
#include "real.h"
#include "report.h"
#include "settings.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Open MPI asks the VM's PMIx server (internal/pmix) who its neighbours are. The server answers with
 * the ranks of the VM; the functions here change that into the ranks of the node. What a rank puts
 * for its neighbours, such as where its shared memory is, would go no further than the server, so it is put
 * for all ranks.
 */
pmix_status_t PMIx_Init(pmix_proc_t *proc, pmix_info_t info[], size_t n);
pmix_status_t PMIx_Get(const pmix_proc_t *proc, const char key[], const pmix_info_t info[], size_t n, pmix_value_t **value);
pmix_status_t PMIx_Put(pmix_scope_t scope, const char key[], pmix_value_t *value);

#define LIBPMIX(name)                                                                        \
	({                                                                                   \
		static __typeof__(&name) real_;                                              \
		if (!real_)                                                                  \
			real_ = (__typeof__(&name))real_function_of("libpmix.so.2", #name);  \
		real_;                                                                       \
	})

static pmix_proc_t self;

/* The ranks of the node, as PMIx lists them (4,5,6,7). NULL if this process has no memory for MPI, or another
 * PMIx server: the program may be an mpirun, whose ranks have its own. */
static const char *neighbours(void) { return !strncmp(self.nspace, "slurm.pmix.", 11) && files_ready() ? settings()->ranks : NULL; }

/* The place of a rank in a list; the length of the list if it is not there. */
static unsigned place(const char *list, pmix_rank_t rank)
{
	unsigned at = 0;

	for (char *rest; *list; list = *rest ? rest + 1 : rest, at++)
		if (strtoul(list, &rest, 10) == rank || rest == list)
			break;
	return at;
}

static unsigned length(const char *list) { return place(list, UINT32_MAX); }

static bool is(const char *key, const char *one, const char *other) { return !strcmp(key, one) || !strcmp(key, other); }

/* Makes what PMIx says about the ranks of the VM a statement about those of the node. */
static void widen(const char *list, const char *key, pmix_rank_t rank, pmix_value_t *value)
{
	if (!strcmp(key, PMIX_LOCAL_PEERS) && value->type == PMIX_STRING) {
		free(value->data.string);
		value->data.string = strdup(list);
	} else if (is(key, PMIX_LOCAL_SIZE, PMIX_NODE_SIZE) && value->type == PMIX_UINT32)
		value->data.uint32 = length(list);
	else if (is(key, PMIX_LOCAL_RANK, PMIX_NODE_RANK) && value->type == PMIX_UINT16 && place(list, rank) < length(list))
		value->data.uint16 = place(list, rank);
	else if (!strcmp(key, PMIX_LOCALLDR) && value->type == PMIX_PROC_RANK)
		value->data.rank = strtoul(list, NULL, 10);
}

/* The relay knows that this rank sees those of other VMs before the server says that it has connected. */
pmix_status_t PMIx_Init(pmix_proc_t *proc, pmix_info_t info[], size_t n)
{
	pmix_status_t status;

	if (!LIBPMIX(PMIx_Init))
		return PMIX_ERR_NOT_SUPPORTED;
	if (settings() && settings()->ranks && files_ready())
		report_pmix();
	status = LIBPMIX(PMIx_Init)(proc, info, n);
	if (!status && proc)
		self = *proc;
	return status;
}

pmix_status_t PMIx_Get(const pmix_proc_t *proc, const char key[], const pmix_info_t info[], size_t n, pmix_value_t **value)
{
	pmix_status_t status;

	if (!LIBPMIX(PMIx_Get))
		return PMIX_ERR_NOT_SUPPORTED;
	status = LIBPMIX(PMIx_Get)(proc, key, info, n, value);
	if (!status && key && neighbours())
		widen(neighbours(), key, proc ? proc->rank : self.rank, *value);
	return status;
}

pmix_status_t PMIx_Put(pmix_scope_t scope, const char key[], pmix_value_t *value)
{
	if (!LIBPMIX(PMIx_Put))
		return PMIX_ERR_NOT_SUPPORTED;
	return LIBPMIX(PMIx_Put)(neighbours() && scope == PMIX_LOCAL ? PMIX_GLOBAL : scope, key, value);
}

/*
 * Open MPI takes a segment of shared memory for its own if the process that made it has its own
 * number. Processes of two VMs may have the same number, so Open MPI is told others.
 */
pid_t getpid(void)
{
	pid_t pid = raw(SYS_getpid);
	const char *asks = neighbours() ? real_library(__builtin_return_address(0)) : NULL;

	if (asks && (strstr(asks, "/mca_shmem_") || strstr(asks, "/libopen-pal.")))
		pid |= (settings()->vm % 256) << 22; /* Linux's numbers are below 2^22 */
	return pid;
}
