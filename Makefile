# Slurm-V. `make demo` and `make test` install, build and run everything they
# need; `make install` is for sites and packagers.

PREFIX      ?= /usr/local
SYSCONFDIR  ?= /etc
BINDIR      ?= $(PREFIX)/bin
LIBDIR      ?= $(PREFIX)/lib/slurm-v
LIBEXECDIR  ?= $(PREFIX)/libexec/slurm-v
DATADIR     ?= $(PREFIX)/share
INCLUDEDIR  ?= $(PREFIX)/include
MANDIR      ?= $(DATADIR)/man
UNITDIR     ?= $(PREFIX)/lib/systemd/system
STATEDIR    ?= /var/lib/slurmv/%n
DESTDIR     ?=
# The directory of the site's own slurm/spank.h: a plugin fits only one release of Slurm.
SLURM_INCLUDE ?= /usr/include

BUILD   ?= build
GO      ?= go
CC      ?= cc
CFLAGS  ?= -O2 -g
# 0.1.0+COMMIT, with -dirty if there are uncommitted changes. Without .git, as in a tarball, 0.1.0.
RELEASE := 0.1.0
COMMIT  := $(shell test -e .git && git describe --always --dirty --exclude='*' 2>/dev/null)
VERSION := $(RELEASE)$(COMMIT:%=+%)

MODULE  := github.com/slurm-v/slurm-v
CONF    := $(SYSCONFDIR)/slurm-v/slurmv.toml
LDFLAGS := -s -w -X $(MODULE)/config.Path=$(CONF) -X $(MODULE)/config.Libdir=$(LIBDIR) -X $(MODULE)/config.Libexec=$(LIBEXECDIR) -X $(MODULE)/config.Version=$(VERSION)
# libvirt is loaded at run time: submit hosts need not have it.
TAGS    := libvirt_dlopen

# With -trimpath, what Go has compiled in one clone serves all, and no program has paths of this machine in it. A make
# that another one calls has the flag already.
export GOFLAGS := $(filter-out -trimpath,$(GOFLAGS)) -trimpath

# The paths are compiled in, and the plugin is for one release of Slurm: another path, Slurm or system, such as one of
# scripts/release, needs another build.
SYSTEM   := $(shell cat /etc/os-release $(SLURM_INCLUDE)/slurm/slurm_version.h 2>/dev/null | cksum)
SETTINGS := $(LDFLAGS) $(TAGS) $(STATEDIR) $(SLURM_INCLUDE) $(SYSTEM)
$(shell mkdir -p $(BUILD); echo '$(SETTINGS)' | cmp -s - $(BUILD)/settings || echo '$(SETTINGS)' > $(BUILD)/settings)

GO_SOURCES := $(shell find . -name '*.go' -not -path './build/*' -not -path './bench/*') config/slurmv.toml images/start-guest.sh internal/imagecheck/facts.sh internal/imagempi/mpi.sh vmstep/listmpi.sh $(wildcard internal/*/*.css) $(wildcard fabric/cxi/*.[ch]) go.mod go.sum
SHIM       := $(wildcard spank/*.c spank/*.h) spank/spank.map Makefile
LUA        := $(BUILD)/job_submit.lua $(BUILD)/cli_filter.lua
GUEST_PKG ?= ./cmd/slurmv-guest
PROGRAMS   := slurm-v-run slurmv slurmv-agent slurmv-relay slurmv-ledger
STATIC     := slurmv-guest slurmv-workload
HOOKS      := prolog-slurmctld epilog-slurmctld

.PHONY: all build packages install demo test unit fuzz lint clean
all: build

build: $(PROGRAMS:%=$(BUILD)/%) $(BUILD)/slurmv-fabric $(HOOKS:%=$(BUILD)/%) $(STATIC:%=$(BUILD)/%) $(BUILD)/libslurmv-mpi.so $(BUILD)/slurmv-pmix $(BUILD)/slurmv.so $(BUILD)/libslurmv.so $(LUA) $(BUILD)/docs

# Man pages and completions are generated from the commands.
$(BUILD)/docs: $(BUILD)/slurmv $(BUILD)/slurm-v-run
	rm -rf $@
	$(BUILD)/slurmv gen-docs $@
	touch $@

$(PROGRAMS:%=$(BUILD)/%): $(BUILD)/%: $(GO_SOURCES) $(BUILD)/settings
	$(GO) build -tags $(TAGS) -ldflags '$(LDFLAGS)' -o $@ ./cmd/$*

# What runs in VMs is static, so that it needs no library of the image.
$(BUILD)/slurmv-guest: PKG = $(GUEST_PKG)
$(BUILD)/slurmv-workload: PKG = ./cmd/slurmv-workload
$(STATIC:%=$(BUILD)/%): $(GO_SOURCES) $(BUILD)/settings
	CGO_ENABLED=0 $(GO) build -ldflags '-s -w -X $(MODULE)/config.Version=$(VERSION)' -o $@ $(PKG)

# slurmctld waits for it, and without libraries it starts sooner.
$(BUILD)/slurmv-fabric: $(GO_SOURCES) $(BUILD)/settings
	CGO_ENABLED=0 $(GO) build -ldflags '$(LDFLAGS)' -o $@ ./cmd/slurmv-fabric

$(HOOKS:%=$(BUILD)/%): $(BUILD)/%: packaging/slurmctld/%.in $(BUILD)/settings
	sed 's|@LIBEXECDIR@|$(LIBEXECDIR)|' $< > $@

$(BUILD)/libslurmv.so: $(GO_SOURCES) $(BUILD)/settings
	$(GO) build -buildmode=c-shared -ldflags '$(LDFLAGS)' -o $@ ./spank
	rm -f $(BUILD)/libslurmv.h

$(BUILD)/slurmv.so: $(SHIM) $(BUILD)/settings
	$(CC) $(CFLAGS) -std=gnu11 -Wall -Wextra -Werror -fPIC -shared -I$(SLURM_INCLUDE) \
	  -DSLURMV_AGENT='"$(LIBEXECDIR)/slurmv-agent"' -DSLURMV_CONFIG='"$(CONF)"' -DSLURMV_STATE='"$(STATEDIR)"' \
	  -Wl,--unresolved-symbols=ignore-all -Wl,--version-script=spank/spank.map -o $@ $(filter %.c,$(SHIM)) -ldl

# Images may have an older glibc than this machine, whose dlsym is in libdl, shm_open in librt and sem_wait in libpthread. A program
# need not have them itself. Only the functions in front of the C library's are seen by programs.
$(BUILD)/libslurmv-mpi.so: $(wildcard ivshmem/mpi/*.[ch] ivshmem/mpi/*.map) internal/pmix/abi.h $(BUILD)/settings Makefile
	$(CC) -O2 -std=gnu11 -Wall -Wextra -Werror -fPIC -shared -Wl,--version-script=ivshmem/mpi/functions.map \
	  -o $@ $(wildcard ivshmem/mpi/*.c) -Wl,--no-as-needed -l:libdl.so.2 -l:librt.so.1 -l:libpthread.so.0

$(BUILD)/slurmv-pmix: $(wildcard internal/pmix/*.[ch]) $(BUILD)/settings Makefile
	$(CC) $(CFLAGS) -std=gnu11 -Wall -Wextra -Werror -s -o $@ $(wildcard internal/pmix/*.c) -pthread -ldl

# Each script contains the common rules, since a site may install only one of them.
$(LUA): $(BUILD)/%.lua: spank/lua/%.lua.in spank/lua/rules.lua
	sed -e '/^@RULES@$$/{' -e 'r spank/lua/rules.lua' -e 'd' -e '}' $< > $@

packages:
	scripts/install-packages

install: build
	install -d $(DESTDIR)$(BINDIR) $(DESTDIR)$(LIBDIR) $(DESTDIR)$(LIBEXECDIR) $(DESTDIR)$(SYSCONFDIR)/slurm-v $(DESTDIR)$(DATADIR)/slurm-v
	install -m 755 $(BUILD)/slurm-v-run $(BUILD)/slurmv $(DESTDIR)$(BINDIR)
	install -m 755 $(BUILD)/slurmv-fabric $(BUILD)/slurmv-ledger $(HOOKS:%=$(BUILD)/%) $(DESTDIR)$(LIBEXECDIR)
	install -m 755 $(BUILD)/slurmv-agent $(BUILD)/slurmv-relay $(STATIC:%=$(BUILD)/%) $(DESTDIR)$(LIBEXECDIR)
	install -m 755 $(BUILD)/libslurmv-mpi.so $(BUILD)/slurmv-pmix $(DESTDIR)$(LIBEXECDIR)
	sed 's|@BINDIR@|$(BINDIR)|' packaging/healthcheck.in > $(DESTDIR)$(LIBEXECDIR)/healthcheck
	chmod 755 $(DESTDIR)$(LIBEXECDIR)/healthcheck
	# -C keeps the time of an unchanged plugin: slurmv check compares it with slurmd's start.
	install -C -m 755 $(BUILD)/slurmv.so $(BUILD)/libslurmv.so $(DESTDIR)$(LIBDIR)
	install -m 644 $(LUA) $(DESTDIR)$(DATADIR)/slurm-v
	install -D -m 644 ivshmem/slurmv_ivshmem.h $(DESTDIR)$(INCLUDEDIR)/slurmv_ivshmem.h
	install -d $(DESTDIR)$(MANDIR)/man1
	install -m 644 $(BUILD)/docs/man/man1/* $(DESTDIR)$(MANDIR)/man1
	install -D -m 644 $(BUILD)/docs/completions/slurmv.bash $(DESTDIR)$(DATADIR)/bash-completion/completions/slurmv
	install -D -m 644 $(BUILD)/docs/completions/_slurmv $(DESTDIR)$(DATADIR)/zsh/site-functions/_slurmv
	install -D -m 644 $(BUILD)/docs/completions/slurmv.fish $(DESTDIR)$(DATADIR)/fish/vendor_completions.d/slurmv.fish
	test -e $(DESTDIR)$(CONF) || install -m 644 config/slurmv.toml $(DESTDIR)$(CONF)
	install -d $(DESTDIR)$(UNITDIR)
	sed 's|@BINDIR@|$(BINDIR)|' packaging/slurmv-vfs.service.in > $(DESTDIR)$(UNITDIR)/slurmv-vfs.service
	chmod 644 $(DESTDIR)$(UNITDIR)/slurmv-vfs.service
	echo 'required $(LIBDIR)/slurmv.so' > $(DESTDIR)$(DATADIR)/slurm-v/plugstack.conf

clean:
	rm -rf $(BUILD)

# The parts of `make test` other than the scenarios on the cluster.

# All shell of the repository: programs by their first line, and the parts that a program
# PROGRAM sources from PROGRAM.d, which are checked in its context.
HASH := \#
SCRIPTS = $(shell git ls-files -z | xargs -0 awk 'FNR == 1 && /^$(HASH)!.*sh( |$$)/ { print FILENAME } { nextfile }')
SHELL_PARTS = $(filter-out $(SCRIPTS),$(shell git ls-files '*.sh'))

LINT := $(BUILD)/tools/golangci-lint
LINT_VERSION := v2.15.0

$(LINT):
	GOBIN=$(abspath $(BUILD)/tools) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)

# golangci-lint has go vet in it, for the code without further tags.
lint: $(LINT)
	scripts/changelog | diff CHANGELOG.md -
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -d $$(git ls-files '*.go'); exit 1; }
	$(GO) vet -tags $(TAGS),cluster,soak ./test
	$(GO) vet -tags $(TAGS),noguests ./vmlaunch
	$(GO) vet -tags $(TAGS),soak ./fabric/ledger ./fabric/controller ./vfpool/lease ./vmlaunch/hostdir
	$(GO) vet -tags $(TAGS),sriov ./test/sriovnode
	$(LINT) run --build-tags $(TAGS) ./...
	cd bench && $(abspath $(LINT)) run --build-tags $(TAGS) ./...
	shellcheck -x $(SCRIPTS)
	shellcheck -x -a $(patsubst %.d/,%,$(sort $(dir $(SHELL_PARTS))))

# CHANGELOG.md joins the fragments of the releases; CONTRIBUTING.md says how to write one.
.PHONY: changelog
changelog:
	scripts/changelog >CHANGELOG.md

# Without the race detector: vfpool/place and cmd have no goroutines. With it the first computes five times as long, and the
# tests of cmd start hundreds of programs, each of which needs 0.1 s more of CPU. test/mutants checks the types of hundreds of
# packages, three times as long. Two tests of fabric/controller run the programs of hundreds of jobs. `make lint` has go vet.
# Many tests wait more than they compute, so more packages than there are cores are tested at once. Each test runs, also if it
# has passed before: that finds those that do not always pass. GORACE: else each program that a test starts waits a second at
# its end. The time limit is for tests that hang, however busy the machine is.
unit: export GORACE = atexit_sleep_ms=0
unit: UNRACED = /(cmd/.*|vfpool/place|test/mutants)$$
unit: OF_PROGRAMS = ^Test(ScriptsThatAreKilledAtAnyStep|ManyJobsShareNoTagAndNoneIsRefused)$$
unit: FLAGS = -vet=off -count 1 -timeout 45m -p $$((2 * $$(nproc))) -tags $(TAGS)
unit:
	scripts/in-memory $(GO) test $(FLAGS) -race -skip '$(OF_PROGRAMS)' $$($(GO) list -tags $(TAGS) ./... | grep -vE '$(UNRACED)')
	scripts/in-memory $(GO) test $(FLAGS) $$($(GO) list -tags $(TAGS) ./... | grep -E '$(UNRACED)')
	scripts/in-memory $(GO) test $(FLAGS) -run '$(OF_PROGRAMS)' ./fabric/controller
	$(GO) test -C bench $(FLAGS) -race ./...

# Virtual functions with a real kernel and its drivers, on an emulated node. Its kernel also has 802.1Q, which
# some machines lack: VLAN tests that skip there run here. RUN chooses tests.
.PHONY: sriov
sriov: $(BUILD)/slurmv-agent $(BUILD)/slurmv-guest
	CGO_ENABLED=0 $(GO) test -c -tags $(TAGS),sriov -o $(BUILD)/sriovnode.test ./test/sriovnode
	CGO_ENABLED=0 $(GO) test -c -tags $(TAGS) -o $(BUILD)/software.test ./vfpool/software
	image=$$(scripts/guest-image --guest $(BUILD)/slurmv-guest) && SRIOVNODE_BUILD=$(abspath $(BUILD)) SRIOVNODE_IMAGE=$$image \
	  scripts/sriov-node run -- sh -c 'modprobe tun && $(BUILD)/software.test -test.v -test.run VLAN && \
	    exec $(BUILD)/sriovnode.test -test.v -test.timeout 1h $(if $(RUN),-test.run "$(RUN)")'

# Removes each defence once; its test must then fail. See test/mutants.
.PHONY: mutants
mutants:
	$(GO) run -tags $(TAGS) ./test/mutants -tags $(TAGS) $(if $(SAMPLE),-sample $(SAMPLE)) $(if $(KIND),-kind $(KIND)) $(if $(RUN),-run '$(RUN)')

# Tests that take long. The cycles have their own cluster.
.PHONY: soak soak-cycles
soak: soak-cycles soak-mpi soak-fabric
	$(GO) test -tags $(TAGS),soak -count 1 -timeout 2h ./fabric/ledger ./fabric/controller ./vfpool/lease
	$(GO) test -tags $(TAGS),soak -count 1 -timeout 5h ./vmlaunch/hostdir
	$(MAKE) sriov TAGS=$(TAGS),soak

soak-cycles: packages
	scripts/soak

# Messages of MPI by shared memory for ten minutes with each library, and 200 kills of its runs.
.PHONY: soak-mpi
soak-mpi: packages
	scripts/soak mpi

# 300 times something of the tags of jobs is killed or lost.
.PHONY: soak-fabric
soak-fabric: packages
	scripts/soak fabric

# Measures how fast VMs start: docs/benchmarks.md. The machine should have nothing else to do.
.PHONY: bench
bench: packages
	bench/launch $(PARTS)

# Measures the cost of many VMs and nodes, without guests: docs/scale.md. The machine should have nothing else
# to do.
.PHONY: bench-scale
bench-scale: packages
	bench/scale

# The suite, and the rest of it, which takes longer. Continuous integration runs both.
.PHONY: test-rest
test: packages
	scripts/test
test-rest: packages
	scripts/test rest

# The scenarios alone, also those of test/long; all of them or some: `scripts/release 13 -- make scenarios RUN='^TestArray$'`.
.PHONY: scenarios
scenarios: packages
	scripts/test scenarios $(if $(RUN),'$(RUN)')

# What docs/support.md says of Slurm's and Debian's other releases, and of cgroup v2. It takes hours; RUN
# chooses some of it.
.PHONY: test-matrix
test-matrix:
	test/matrix $(if $(RUN),'$(RUN)')

# The part of it about MPI: each library, with Debian 12, 13 and testing.
.PHONY: test-mpi
test-mpi:
	test/matrix mpi

demo: packages
	scripts/cluster up
	scripts/demo

# The scenarios with VMs of a real OpenStack, of Debian 12's packages. `make test-rest` has most of them. RUN chooses others, also
# those that take long: `make test-openstack RUN='^TestCloud.*'`.
.PHONY: test-openstack
test-openstack: packages
	scripts/test openstack $(if $(RUN),'$(RUN)')

# The same job in VMs of a real OpenStack, of Debian 12's packages.
.PHONY: demo-openstack
demo-openstack: export SLURMV_BACKEND = openstack
demo-openstack: packages
	scripts/openstack up
	scripts/demo

# Measures what VMs cost applications, with KVM also in comparison with bare nodes.
.PHONY: bench-apps
bench-apps: packages
	scripts/cluster up
	bench/applications
