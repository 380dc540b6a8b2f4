//go:build ignore

#define _GNU_SOURCE

#include "libpmix.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libpmix.so.2"

/* An Open MPI in a directory of its own has its libpmix in lib or lib64 beside bin, which is in
 * PATH; LD_LIBRARY_PATH need not name it. */
static void *open_beside(const char *program)
{
	static const char *const libraries[] = {"lib", "lib64", "lib/pmix"};
	char *path = strdup(getenv("PATH") ? getenv("PATH") : ""), file[4096], *rest = path, *dir;
	void *handle = NULL;

	while (!handle && (dir = strsep(&rest, ":"))) {
		snprintf(file, sizeof(file), "%s/%s", dir, program);
		if (access(file, X_OK))
			continue;
		for (size_t i = 0; !handle && i < sizeof(libraries) / sizeof(*libraries); i++) {
			snprintf(file, sizeof(file), "%s/../%s/" LIBRARY, dir, libraries[i]);
			handle = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
		}
	}
	free(path);
	return handle;
}

/* Its components find its functions only if they are global. */
static void *open_library(void)
{
	const char *named = getenv("SLURMV_LIBPMIX");
	void *handle = dlopen(named ? named : LIBRARY, RTLD_NOW | RTLD_GLOBAL);

	return handle || named ? handle : open_beside("mpirun");
}

static bool find(void *handle, const char *name, void *function)
{
	return (*(void **)function = dlsym(handle, name)) != NULL;
}

const struct libpmix *libpmix_open(void)
{
	static struct libpmix l;
	void *handle = open_library();

	if (handle && find(handle, "PMIx_server_init", &l.init) && find(handle, "PMIx_server_register_nspace", &l.register_nspace) &&
	    find(handle, "PMIx_server_register_client", &l.register_client) && find(handle, "PMIx_server_setup_fork", &l.setup_fork) &&
	    find(handle, "PMIx_server_finalize", &l.finalize) && find(handle, "PMIx_Error_string", &l.error_string))
		return &l;
	fprintf(stderr, "slurm-v: --mpi=pmix: cannot use the image's PMIx library (%s); SLURMV_LIBPMIX=PATH names another, and slurm-v-run --launcher=ssh mpirun … needs none\n", dlerror());
	exit(1);
}
