//go:build ignore

/*
 * The part of PMIx's binary interface that is used here: the PMIx Standard 4.1, chapters 3
 * (types and keys) and 16 (the server's functions). It is the same in libpmix 3, 4 and 5. Its
 * own header is not used, so that building needs no libpmix.
 */
#ifndef ABI_H
#define ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef int pmix_status_t;
typedef uint32_t pmix_rank_t;
typedef char pmix_nspace_t[256];
typedef uint8_t pmix_scope_t;

enum {
	PMIX_SUCCESS = 0,
	PMIX_ERR_NOT_FOUND = -46,
	PMIX_ERR_NOT_SUPPORTED = -47,
	PMIX_ERROR = -1,
	PMIX_OPERATION_SUCCEEDED = -157,
};

/* Who may get what a rank puts: those of its node, or all. */
enum {
	PMIX_LOCAL = 1,
	PMIX_GLOBAL = 3,
};

#define PMIX_RANK_WILDCARD (UINT32_MAX - 1)

typedef struct {
	pmix_nspace_t nspace;
	pmix_rank_t rank;
} pmix_proc_t;

enum {
	PMIX_BOOL = 1,
	PMIX_STRING = 3,
	PMIX_UINT16 = 13,
	PMIX_UINT32 = 14,
	PMIX_INFO = 24,
	PMIX_DATA_ARRAY = 39,
	PMIX_PROC_RANK = 40,
};

typedef struct {
	uint16_t type;
	size_t size;
	void *array;
} pmix_data_array_t;

typedef struct {
	uint16_t type;
	union {
		bool flag;
		char *string;
		uint16_t uint16;
		uint32_t uint32;
		pmix_rank_t rank;
		pmix_data_array_t *darray;
		void *largest[3];
	} data;
} pmix_value_t;

typedef struct {
	char key[512];
	uint32_t flags;
	pmix_value_t value;
} pmix_info_t;

#define PMIX_NODE_MAP "pmix.nmap"
#define PMIX_PROC_MAP "pmix.pmap"
#define PMIX_JOBID "pmix.jobid"
#define PMIX_UNIV_SIZE "pmix.univ.size"
#define PMIX_JOB_SIZE "pmix.job.size"
#define PMIX_MAX_PROCS "pmix.max.size"
#define PMIX_APP_SIZE "pmix.app.size"
#define PMIX_NUM_NODES "pmix.num.nodes"
#define PMIX_APPLDR "pmix.aldr"
#define PMIX_NPROC_OFFSET "pmix.offset"
#define PMIX_NODE_SIZE "pmix.node.size"
#define PMIX_LOCAL_SIZE "pmix.local.size"
#define PMIX_LOCAL_PEERS "pmix.lpeers"
#define PMIX_LOCALLDR "pmix.lldr"
#define PMIX_PROC_INFO_ARRAY "pmix.pdata"
#define PMIX_RANK "pmix.rank"
#define PMIX_APPNUM "pmix.appnum"
#define PMIX_GLOBAL_RANK "pmix.grank"
#define PMIX_APP_RANK "pmix.apprank"
#define PMIX_LOCAL_RANK "pmix.lrank"
#define PMIX_NODE_RANK "pmix.nrank"
#define PMIX_NODEID "pmix.nodeid"
#define PMIX_HOSTNAME "pmix.hname"
#define PMIX_COLLECT_DATA "pmix.collect"
#define PMIX_LOG_STDERR "pmix.log.stderr"

typedef void (*pmix_op_cbfunc_t)(pmix_status_t status, void *data);
typedef void (*pmix_release_cbfunc_t)(void *data);
/* The receiver calls release(release_data) when it has read the bytes. */
typedef void (*pmix_modex_cbfunc_t)(pmix_status_t status, const char *bytes, size_t n, void *data, pmix_release_cbfunc_t release, void *release_data);

/* What the library asks of a resource manager, in the standard's order. A function that is NULL
 * is answered with PMIX_ERR_NOT_SUPPORTED. */
typedef struct {
	pmix_status_t (*client_connected)(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t done, void *data);
	pmix_status_t (*client_finalized)(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t done, void *data);
	pmix_status_t (*abort)(const pmix_proc_t *proc, void *object, int status, const char message[], pmix_proc_t procs[], size_t n,
			       pmix_op_cbfunc_t done, void *data);
	pmix_status_t (*fence_nb)(const pmix_proc_t procs[], size_t n, const pmix_info_t info[], size_t n_info, char *bytes, size_t n_bytes,
				  pmix_modex_cbfunc_t done, void *data);
	pmix_status_t (*direct_modex)(const pmix_proc_t *proc, const pmix_info_t info[], size_t n, pmix_modex_cbfunc_t done, void *data);
	void *publish, *lookup, *unpublish;
	pmix_status_t (*spawn)(const pmix_proc_t *proc, const pmix_info_t info[], size_t n, const void *apps, size_t n_apps, void *done, void *data);
	void *connect[2], *events[4], *query, *tool_connected;
	void (*log)(const pmix_proc_t *proc, const pmix_info_t data[], size_t n, const pmix_info_t hints[], size_t n_hints, pmix_op_cbfunc_t done,
		    void *object);
	void *allocate;
	pmix_status_t (*job_control)(const pmix_proc_t *proc, const pmix_proc_t targets[], size_t n_targets, const pmix_info_t info[], size_t n,
				     void *done, void *data);
	void *others[64]; /* monitoring, groups and what later versions add */
} pmix_server_module_t;

#endif
