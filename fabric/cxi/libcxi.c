/* See libcxi.h. */

#define _GNU_SOURCE

#include "libcxi.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct device; /* an open card; libcxi's own */

struct cxi_library {
	void *handle;
	int (*get_device_list)(struct cxi_devices **);
	void (*free_device_list)(struct cxi_devices *);
	int (*open_device)(uint32_t, struct device **);
	void (*close_device)(struct device *);
	int (*get_svc_list)(struct device *, struct cxi_services **);
	void (*free_svc_list)(struct cxi_services *);
	int (*alloc_svc)(struct device *, const struct cxi_service *, struct cxi_report *);
	int (*destroy_svc)(struct device *, unsigned int);
	int (*get_svc_rsrc_use)(struct device *, unsigned int, struct cxi_use *); /* NULL before LIBCXI_1.5 */
};

/* find looks a function up, and returns whether it is there. */
static bool find(struct cxi_library *lib, const char *name, void *function)
{
	void *found = dlsym(lib->handle, name);

	memcpy(function, &found, sizeof(found));
	return found != NULL;
}

/* missing returns the first of the functions that the library lacks, or NULL. */
static const char *missing(struct cxi_library *lib)
{
	const struct {
		const char *name;
		void *function;
	} functions[] = {
		{"cxil_get_device_list", &lib->get_device_list},
		{"cxil_free_device_list", &lib->free_device_list},
		{"cxil_open_device", &lib->open_device},
		{"cxil_close_device", &lib->close_device},
		{"cxil_get_svc_list", &lib->get_svc_list},
		{"cxil_free_svc_list", &lib->free_svc_list},
		{"cxil_alloc_svc", &lib->alloc_svc},
		{"cxil_destroy_svc", &lib->destroy_svc},
	};

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		if (!find(lib, functions[i].name, functions[i].function))
			return functions[i].name;
	find(lib, "cxil_get_svc_rsrc_use", &lib->get_svc_rsrc_use);
	return NULL;
}

char *slurmv_cxi_open(const char *path, struct cxi_library **out)
{
	struct cxi_library *lib = calloc(1, sizeof(*lib));
	const char *lacks;
	char *error = NULL;

	if (!lib)
		return strdup("no memory");
	lib->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib->handle) {
		error = strdup(dlerror());
	} else if ((lacks = missing(lib))) {
		if (asprintf(&error, "it has no function %s", lacks) < 0)
			error = strdup("it lacks a function");
	} else {
		*out = lib;
		return NULL;
	}
	slurmv_cxi_close(lib);
	return error;
}

void slurmv_cxi_close(struct cxi_library *lib)
{
	if (lib->handle)
		dlclose(lib->handle);
	free(lib);
}

int slurmv_cxi_devices(struct cxi_library *lib, struct cxi_devices **list)
{
	return lib->get_device_list(list);
}

void slurmv_cxi_free_devices(struct cxi_library *lib, struct cxi_devices *list)
{
	lib->free_device_list(list);
}

int slurmv_cxi_services(struct cxi_library *lib, uint32_t id, struct cxi_services **list)
{
	struct device *device;
	int rc = lib->open_device(id, &device);

	if (rc)
		return rc;
	rc = lib->get_svc_list(device, list);
	lib->close_device(device);
	return rc;
}

void slurmv_cxi_free_services(struct cxi_library *lib, struct cxi_services *list)
{
	lib->free_svc_list(list);
}

int slurmv_cxi_use(struct cxi_library *lib, uint32_t id, uint32_t service, struct cxi_use *use)
{
	struct device *device;
	int rc;

	if (!lib->get_svc_rsrc_use)
		return -ENOSYS;
	rc = lib->open_device(id, &device);
	if (rc)
		return rc;
	rc = lib->get_svc_rsrc_use(device, service, use);
	lib->close_device(device);
	return rc;
}

int slurmv_cxi_alloc(struct cxi_library *lib, uint32_t id, const struct cxi_service *service, struct cxi_report *report)
{
	struct device *device;
	int rc = lib->open_device(id, &device);

	if (rc)
		return rc;
	rc = lib->alloc_svc(device, service, report);
	lib->close_device(device);
	return rc;
}

int slurmv_cxi_destroy(struct cxi_library *lib, uint32_t id, uint32_t service)
{
	struct device *device;
	int rc = lib->open_device(id, &device);

	if (rc)
		return rc;
	rc = lib->destroy_svc(device, service);
	lib->close_device(device);
	return rc;
}
