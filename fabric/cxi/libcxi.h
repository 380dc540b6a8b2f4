/*
 * The part of HPE's libcxi.so.1 that this package uses.
 *
 * The layouts are those of struct cxil_devinfo, cxil_device_list and cxil_svc_list
 * (HewlettPackard/shs-libcxi, include/libcxi.h), and of cxi_svc_desc, cxi_limits,
 * cxi_rsrc_use and cxi_svc_fail_info (HewlettPackard/shs-cxi-driver,
 * include/uapi/ethernet/cxi-abi.h, before release 13.1 include/uapi/misc/cxi.h). They are
 * the same in the releases 12.0 to 14.0 of the Slingshot Host Software, and on main in
 * June 2026. The assertions have the offsets that a compiler gives to HPE's headers.
 */
#ifndef SLURMV_LIBCXI_H
#define SLURMV_LIBCXI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the flags of a service are the bits of a bit-field, from the lowest one"
#endif

enum {
	CXI_RESOURCES = 8,
	CXI_CLASSES = 5, /* the last one is Ethernet's */
	CXI_VNIS = 4,
	CXI_MEMBERS = 2,
	CXI_NAME = 14,
};

/* The flags of a service. */
enum {
	CXI_RESTRICTED_MEMBERS = 1 << 0,
	CXI_RESTRICTED_VNIS = 1 << 1,
	CXI_RESTRICTED_CLASSES = 1 << 2,
	CXI_LIMITED = 1 << 3,
	CXI_ENABLED = 1 << 4,
	CXI_SYSTEM = 1 << 5,
};

enum { CXI_NOBODY, CXI_UID, CXI_GID, CXI_NETNS };

struct cxi_limit {
	uint16_t max, reserved;
};

struct cxi_member {
	uint32_t id;
	uint32_t type;
};

struct cxi_service {
	uint8_t flags;
	uint8_t vnis; /* how many of vni count */
	uint16_t vni[CXI_VNIS];
	bool class[CXI_CLASSES];
	struct cxi_member member[CXI_MEMBERS];
	struct cxi_limit limit[CXI_RESOURCES];
	uint32_t id;
};

_Static_assert(sizeof(struct cxi_service) == 68, "cxi_svc_desc");
_Static_assert(offsetof(struct cxi_service, vni) == 2, "vnis");
_Static_assert(offsetof(struct cxi_service, class) == 10, "tcs");
_Static_assert(offsetof(struct cxi_service, member) == 16, "members");
_Static_assert(offsetof(struct cxi_service, limit) == 32, "limits");
_Static_assert(offsetof(struct cxi_service, id) == 64, "svc_id");

struct cxi_services {
	uint32_t count;
	struct cxi_service service[];
};

struct cxi_use {
	uint32_t service, pool;
	uint16_t in_use[CXI_RESOURCES]; /* UINT16_MAX: the driver cannot tell */
};

_Static_assert(sizeof(struct cxi_use) == 24, "cxi_rsrc_use");

/* Why a service could not be made. */
struct cxi_report {
	uint16_t available[CXI_RESOURCES];
	bool no_le_pools, no_tle_pools, no_counter_pools;
};

_Static_assert(sizeof(struct cxi_report) == 20, "cxi_svc_fail_info");
_Static_assert(offsetof(struct cxi_report, no_le_pools) == 16, "no_le_pools");

struct cxi_device {
	uint32_t id, nid;
	uint32_t pid_bits, pid_count, pid_granule, min_free_shift, rdzv_get_idx;
	char name[CXI_NAME], driver[9];
	uint32_t vendor, device, revision, prototype, platform;
	uint16_t ptes, txqs, tgqs, eqs, cts, acs, tles, les;
	uint16_t pci_domain;
	uint8_t pci_bus, pci_device, pci_function;
	size_t mtu, speed;
	uint8_t link;
	int32_t uc_nic;
	uint32_t pct_eq, version;
	char board[16];
	bool vf;
	uint32_t system;
};

_Static_assert(sizeof(struct cxi_device) == 152, "cxil_devinfo");
_Static_assert(offsetof(struct cxi_device, name) == 28, "device_name");
_Static_assert(offsetof(struct cxi_device, ptes) == 72, "num_ptes");
_Static_assert(offsetof(struct cxi_device, speed) == 104, "link_speed");
_Static_assert(offsetof(struct cxi_device, vf) == 144, "is_vf");

struct cxi_devices {
	uint32_t count;
	struct cxi_device device[];
};

_Static_assert(offsetof(struct cxi_devices, device) == 8, "cxil_device_list");

struct cxi_library; /* libcxi, loaded */

/* slurmv_cxi_open returns NULL, or a text that says why not and is to be freed. */
char *slurmv_cxi_open(const char *path, struct cxi_library **lib);
void slurmv_cxi_close(struct cxi_library *lib);

/*
 * The others return a negative errno. They open the card and close it again: what is open
 * keeps a card's driver from being restarted. Lists are to be freed by the function of
 * their name.
 */
int slurmv_cxi_devices(struct cxi_library *lib, struct cxi_devices **list);
void slurmv_cxi_free_devices(struct cxi_library *lib, struct cxi_devices *list);
int slurmv_cxi_services(struct cxi_library *lib, uint32_t device, struct cxi_services **list);
void slurmv_cxi_free_services(struct cxi_library *lib, struct cxi_services *list);
int slurmv_cxi_use(struct cxi_library *lib, uint32_t device, uint32_t id, struct cxi_use *use);
int slurmv_cxi_alloc(struct cxi_library *lib, uint32_t device, const struct cxi_service *service, struct cxi_report *report);
int slurmv_cxi_destroy(struct cxi_library *lib, uint32_t device, uint32_t id);

#endif
