//go:build ignore

/* The image's libpmix, opened at run time: an image has the one that its Open MPI was built
 * with. The binary interface is the same from PMIx 3 on. */
#ifndef LIBPMIX_H
#define LIBPMIX_H

#include "abi.h"

struct libpmix {
	pmix_status_t (*init)(pmix_server_module_t *module, pmix_info_t info[], size_t n);
	pmix_status_t (*register_nspace)(const pmix_nspace_t nspace, int local, pmix_info_t info[], size_t n, pmix_op_cbfunc_t done, void *data);
	pmix_status_t (*register_client)(const pmix_proc_t *proc, uid_t uid, gid_t gid, void *object, pmix_op_cbfunc_t done, void *data);
	pmix_status_t (*setup_fork)(const pmix_proc_t *proc, char ***env);
	pmix_status_t (*finalize)(void);
	const char *(*error_string)(pmix_status_t status);
};

/* Ends this process with a sentence if the image has none. */
const struct libpmix *libpmix_open(void);

#endif
