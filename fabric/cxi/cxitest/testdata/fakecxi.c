/*
 * A libcxi without cards, for tests. It keeps the services in a file and refuses what the
 * driver refuses: cxi_svc_alloc, reserve_rsrcs and cxi_svc_destroy of shs-cxi-driver's
 * cass_svc.c say when. Package cxitest lists the settings.
 *
 * The layouts are written down here once more, so that they have two readers.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { CARDS = 8, SERVICES = 64, KINDS = 8 };
enum { PTE, TXQ, TGQ, EQ, CT, LE, TLE, AC };

static const char *const kinds[KINDS] = {"PTES", "TXQS", "TGQS", "EQS", "CTS", "LES", "TLES", "ACS"};
static const int all[KINDS] = {2048, 1024, 512, 2047, 2047, 16384, 2048, 1022};

struct devinfo {
	unsigned int dev_id, nid, pid_bits, pid_count, pid_granule, min_free_shift, rdzv_get_idx;
	char device_name[14], driver_name[9];
	unsigned int vendor_id, device_id, device_rev, device_proto, device_platform;
	uint16_t num_ptes, num_txqs, num_tgqs, num_eqs, num_cts, num_acs, num_tles, num_les;
	uint16_t pci_domain;
	uint8_t pci_bus, pci_device, pci_function;
	size_t link_mtu, link_speed;
	uint8_t link_state;
	int uc_nic;
	unsigned int pct_eq;
	int cassini_version;
	char fru_description[16];
	bool is_vf;
	int system_type_identifier;
};

struct device_list {
	unsigned int count;
	struct devinfo info[];
};

struct limits {
	uint16_t max, res;
};

struct svc_desc {
	uint8_t restricted_members : 1, restricted_vnis : 1, restricted_tcs : 1, resource_limits : 1, enable : 1, is_system_svc : 1,
		cntr_pool_id : 2;
	uint8_t num_vld_vnis;
	uint16_t vnis[4];
	bool tcs[5];
	struct {
		unsigned int id;
		int type;
	} members[2];
	struct limits limits[KINDS];
	unsigned int svc_id;
};

struct svc_list {
	unsigned int count;
	struct svc_desc descs[];
};

struct rsrc_use {
	unsigned int svc_id, tle_pool_id;
	uint16_t in_use[KINDS];
};

struct fail_info {
	uint16_t rsrc_avail[KINDS];
	bool no_le_pools, no_tle_pools, no_cntr_pools;
};

struct dev {
	struct devinfo info;
};

/* What the file has. */
struct state {
	struct card {
		unsigned int next, count;
		struct {
			struct svc_desc desc;
			int tries; /* to destroy it */
		} svc[SERVICES];
	} card[CARDS];
};

/* beside is the path of the file beside this library with the given end. */
static void beside(const char *end, char path[PATH_MAX])
{
	Dl_info info;

	if (!dladdr((void *)beside, &info))
		abort();
	snprintf(path, PATH_MAX, "%s%s", info.dli_fname, end);
}

/* setting copies a value, of the environment or else of the file of settings. */
static bool setting(const char *name, char value[64])
{
	char variable[80], path[PATH_MAX], line[128];
	bool found = false;
	size_t n = strlen(name);
	FILE *f;

	snprintf(variable, sizeof(variable), "FAKECXI_%s", name);
	if (getenv(variable)) {
		snprintf(value, 64, "%s", getenv(variable));
		return true;
	}
	beside(".conf", path);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, n) && line[n] == '=') {
			snprintf(value, 64, "%.63s", line + n + 1);
			found = true;
		}
	if (f)
		fclose(f);
	return found;
}

static int number(const char *name, int otherwise)
{
	char value[64];

	return setting(name, value) ? atoi(value) : otherwise;
}

static int total(int kind) { return number(kinds[kind], all[kind]); }

/* first_id is the ID of the first service on a card, from a list such as 11,11,12,11. */
static unsigned int first_id(int card)
{
	char value[64], *rest = value;

	if (!setting("FIRST_IDS", value))
		return 2;
	while (card-- > 0)
		rest += strcspn(rest, ",") + 1;
	return atoi(rest);
}

static void add_default(struct card *c)
{
	struct svc_desc d = {.restricted_vnis = 1, .resource_limits = 1, .num_vld_vnis = 2, .vnis = {1, 10}, .svc_id = 1};

	d.enable = number("DEFAULT", 0);
	for (int i = 0; i < 4; i++)
		d.tcs[i] = true;
	for (int i = 0; i < KINDS; i++)
		d.limits[i].max = total(i);
	d.limits[TLE] = (struct limits){512, 512};
	c->svc[c->count++].desc = d;
}

/* take locks and reads the state. The descriptor is for give. */
static int take(struct state *s)
{
	char path[PATH_MAX];
	int fd;

	beside(".state", path);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || flock(fd, LOCK_EX))
		abort();
	memset(s, 0, sizeof(*s));
	if (pread(fd, s, sizeof(*s), 0) == sizeof(*s))
		return fd;
	for (int i = 0; i < CARDS; i++) {
		s->card[i].next = first_id(i);
		add_default(&s->card[i]);
	}
	return fd;
}

static void store(int fd, const struct state *s)
{
	if (pwrite(fd, s, sizeof(*s), 0) != sizeof(*s))
		abort();
}

static int give(int fd, struct state *s, int rc)
{
	store(fd, s);
	close(fd);
	return rc;
}

/*
 * note writes into the log, if there is one, what has happened to a service. The state is taken. A service that is
 * in the log is in the file already, or still: the process may be killed in between.
 */
static void note(const char *what, unsigned int card, const struct svc_desc *d)
{
	char path[PATH_MAX];
	struct timespec now;
	FILE *f;

	if (!number("LOG", 0))
		return;
	beside(".log", path);
	f = fopen(path, "a");
	if (!f)
		abort();
	clock_gettime(CLOCK_REALTIME, &now);
	fprintf(f, "%lld%09ld %s %u %u %u", (long long)now.tv_sec, now.tv_nsec, what, card, d->svc_id, d->members[0].id);
	for (int i = 0; i < d->num_vld_vnis; i++)
		fprintf(f, " %u", d->vnis[i]);
	fputs("\n", f);
	fclose(f);
}

static void fill(struct devinfo *info, int id)
{
	*info = (struct devinfo){
		.dev_id = id, .num_ptes = total(PTE), .num_txqs = total(TXQ), .num_tgqs = total(TGQ), .num_eqs = total(EQ),
		.num_cts = total(CT), .num_acs = total(AC), .num_tles = total(TLE), .num_les = total(LE), .link_speed = 200000,
		.link_state = 1, .is_vf = id >= number("CARDS", 4)};
	snprintf(info->device_name, sizeof(info->device_name), number("GARBLED", 0) ? "c%d" : "cxi%d", id);
}

int cxil_get_device_list(struct device_list **out)
{
	int cards = number("CARDS", 4) + number("VFS", 0);
	struct device_list *list = calloc(1, sizeof(*list) + cards * sizeof(list->info[0]));

	for (int i = 0; i < cards; i++)
		if (i != number("UNLISTED", -1))
			fill(&list->info[list->count++], i);
	*out = list;
	return 0;
}

void cxil_free_device_list(struct device_list *list) { free(list); }

int cxil_open_device(uint32_t id, struct dev **dev)
{
	if (id >= CARDS || (int)id >= number("CARDS", 4) + number("VFS", 0))
		return -ENOENT;
	*dev = calloc(1, sizeof(**dev));
	fill(&(*dev)->info, id);
	return 0;
}

void cxil_close_device(struct dev *dev) { free(dev); }

int cxil_get_svc_list(struct dev *dev, struct svc_list **out)
{
	struct state s;
	int fd = take(&s);
	struct card *c = &s.card[dev->info.dev_id];
	struct svc_list *list = calloc(1, sizeof(*list) + c->count * sizeof(list->descs[0]));

	list->count = c->count;
	for (unsigned int i = 0; i < c->count; i++)
		list->descs[i] = c->svc[i].desc;
	*out = list;
	return give(fd, &s, 0);
}

void cxil_free_svc_list(struct svc_list *list) { free(list); }

#ifndef WITHOUT_USE
int cxil_get_svc_rsrc_use(struct dev *dev, unsigned int id, struct rsrc_use *use)
{
	(void)dev;
	memset(use, 0, sizeof(*use));
	use->svc_id = id;
	use->in_use[TXQ] = number("TXQS_IN_USE", 0);
	use->in_use[LE] = number("LES_IN_USE", 0xffff);
	return 0;
}
#endif

/* available is what no service on the card has reserved. */
static int available(const struct card *c, int kind)
{
	int n = total(kind);

	for (unsigned int i = 0; i < c->count; i++)
		n -= c->svc[i].desc.limits[kind].res;
	return n > 0 ? n : 0;
}

static int pools_in_use(const struct card *c, int kind)
{
	int n = 0;

	for (unsigned int i = 0; i < c->count; i++)
		n += c->svc[i].desc.limits[kind].res > 0;
	return n;
}

static bool valid(const struct svc_desc *d)
{
	for (int i = 0; d->restricted_vnis && i < d->num_vld_vnis; i++)
		if (d->num_vld_vnis > 4 || !d->vnis[i])
			return false;
	for (int i = 0; d->resource_limits && i < KINDS; i++)
		if (d->limits[i].max < d->limits[i].res || d->limits[i].max > total(i))
			return false;
	return true;
}

/* reserve looks for one resource after the other, and stops at the first that is short. */
static int reserve(const struct card *c, struct svc_desc *d, struct fail_info *fail)
{
	for (int i = 0; i < KINDS; i++) {
		if (!d->limits[i].res && !d->limits[i].max)
			continue;
		if (i == TLE && d->limits[i].res < 8)
			d->limits[i].res = 8;
		if (i == TLE)
			d->limits[i].max = d->limits[i].res;
		fail->rsrc_avail[i] = available(c, i);
		if (d->limits[i].res > fail->rsrc_avail[i])
			return -ENOSPC;
	}
	fail->no_le_pools = d->limits[LE].res && pools_in_use(c, LE) >= number("LE_POOLS", 15);
	if (fail->no_le_pools)
		return -ENOSPC;
	fail->no_tle_pools = d->limits[TLE].res && pools_in_use(c, TLE) >= number("TLE_POOLS", 4);
	return fail->no_tle_pools ? -ENOSPC : 0;
}

int cxil_alloc_svc(struct dev *dev, const struct svc_desc *wish, struct fail_info *fail)
{
	struct svc_desc d = *wish;
	struct fail_info why = {0};
	struct state s;
	int fd = take(&s), rc = -number("ALLOC_ERRNO", 0);
	struct card *c = &s.card[dev->info.dev_id];

	if (!rc && dev->info.is_vf)
		rc = -EPERM;
	if (!rc && !valid(&d))
		rc = -EINVAL;
	if (!rc && c->count == SERVICES)
		rc = -ENOMEM;
	if (!rc)
		rc = reserve(c, &d, &why);
	if (rc) {
		if (fail)
			*fail = why;
		return give(fd, &s, rc);
	}
	d.svc_id = c->next++;
	d.enable = d.restricted_vnis;
	c->svc[c->count].tries = 0;
	c->svc[c->count++].desc = d;
	store(fd, &s);
	note("alloc", dev->info.dev_id, &d);
	return give(fd, &s, d.svc_id);
}

/* refusal is the error with which a service is not destroyed this time, or 0. */
static int refusal(int card, int tries)
{
	int busy = number("BUSY", 0), only = number("BUSY_CARD", card);

	return only == card && (busy < 0 || tries < busy) ? -number("BUSY_ERRNO", EBUSY) : 0;
}

int cxil_destroy_svc(struct dev *dev, unsigned int id)
{
	struct state s;
	int fd = take(&s), rc;
	struct card *c = &s.card[dev->info.dev_id];
	unsigned int i = 0;

	while (i < c->count && c->svc[i].desc.svc_id != id)
		i++;
	if (id <= 1 || i == c->count)
		return give(fd, &s, -EINVAL);
	rc = refusal(dev->info.dev_id, c->svc[i].tries++);
	if (rc || number("LIES", 0))
		return give(fd, &s, rc);
	note("destroy", dev->info.dev_id, &c->svc[i].desc);
	c->count--;
	memmove(&c->svc[i], &c->svc[i + 1], (c->count - i) * sizeof(c->svc[i]));
	return give(fd, &s, number("GONE_ERRNO", 0) ? -number("GONE_ERRNO", 0) : 0);
}
