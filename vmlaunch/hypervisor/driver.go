package hypervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"
)

// A Driver is a connection to a libvirt driver.
type Driver struct {
	conn *libvirt.Connect
	pids string // the directory of the pid files of QEMU
}

// qemuConf configures the embedded driver. libvirt must not move QEMU out of the step's
// cgroup, relabel a user's files or rely on a log daemon. user and group stay root, because
// libvirt caches QEMU's capabilities for that user; each domain's label names the user who
// runs its QEMU. hugetlbfs_mount is empty, because libvirt would otherwise make a directory
// for each job on every hugetlbfs of the node and leave it there; huge pages come from a
// memfd. capability_filters hides QEMU's list of the features that its processor lacks.
// With the list, libvirt asks QEMU about every feature, one question each, which takes a
// fifth of a second for each VM; without it, libvirt asks two questions.
const qemuConf = `cgroup_controllers = []
namespaces = []
security_driver = "none"
stdio_handler = "file"
dynamic_ownership = 0
remember_owner = 0
user = "root"
group = "root"
max_core = 0
seccomp_sandbox = 1
hugetlbfs_mount = []
capability_filters = ["cpu-unavailable-features"]
`

// eventLoop serves libvirt's timers and monitors; the embedded driver stalls without it. A
// process starts one loop, before its first connection.
var eventLoop = sync.OnceValue(func() error {
	if err := libvirt.EventRegisterDefaultImpl(); err != nil {
		return err
	}
	go func() {
		for {
			_ = libvirt.EventRunDefaultImpl()
		}
	}()
	return nil
})

// Open opens libvirt's QEMU driver inside this process, rooted at root. It takes libvirt
// seconds to learn what the emulator can do; it keeps the answer in cache for later jobs.
// QEMU's output goes to logs and not below root: root is in memory, and users who trace
// their QEMU can make it print without end.
func Open(root, cache, logs string) (*Driver, error) {
	if err := layOutRoot(root, cache, logs); err != nil {
		return nil, fmt.Errorf("lay out libvirt's root: %w", err)
	}
	conn, err := connect(uri(root))
	return &Driver{conn, filepath.Join(root, "run", "qemu")}, err
}

// Close closes the connection. VMs keep running.
func (d *Driver) Close() { _, _ = d.conn.Close() }

// noBus is the address of a bus that cannot be.
const noBus = "unix:path=/proc/none"

// connect opens the driver. libvirt must find no system bus: on it, it would ask systemd-machined
// to take each VM over, which moves QEMU out of the step's cgroup, whatever cgroup_controllers
// says (virCgroupNewMachine). There is no setting for that.
func connect(uri string) (*libvirt.Connect, error) {
	if err := os.Setenv("DBUS_SYSTEM_BUS_ADDRESS", noBus); err != nil {
		return nil, err
	}
	if err := eventLoop(); err != nil {
		return nil, fmt.Errorf("start libvirt's event loop: %w", err)
	}
	conn, err := libvirt.NewConnect(uri)
	if err != nil {
		return nil, fmt.Errorf("open libvirt's %s: %w", uri, plain(err))
	}
	return conn, nil
}

// layOutRoot makes the directories below root. QEMU passes through the open ones. QEMU
// needs no way to logs, because it gets its log as a descriptor, and none to cache, which
// only libvirt reads.
func layOutRoot(root, cache, logs string) error {
	err := errors.Join(
		os.MkdirAll(filepath.Join(root, "etc"), 0o711),
		os.MkdirAll(cache, 0o711),
		os.MkdirAll(logs, 0o700),
		linkIfMissing(cache, filepath.Join(root, "cache")),
		os.MkdirAll(filepath.Join(root, "log"), 0o700),
		linkIfMissing(logs, filepath.Join(root, "log", "qemu")))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, "etc", "qemu.conf"), []byte(qemuConf), 0o600)
}

func linkIfMissing(to, name string) error {
	if err := os.Symlink(to, name); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// Versions returns the versions of QEMU and libvirt.
func (d *Driver) Versions() (string, error) {
	qemu, err := d.conn.GetVersion()
	if err != nil {
		return "", fmt.Errorf("ask libvirt for QEMU's version: %w", plain(err))
	}
	lib, err := d.conn.GetLibVersion()
	return fmt.Sprintf("%d libvirt %d", qemu, lib), err
}

// Define makes the described VM known to libvirt, without starting it.
func (d *Driver) Define(vm *libvirtxml.Domain) (*Domain, error) {
	text, err := vm.Marshal()
	if err != nil {
		return nil, err
	}
	domain, err := d.conn.DomainDefineXML(text)
	if err != nil {
		return nil, fmt.Errorf("define domain %s: %w", vm.Name, plain(err))
	}
	return &Domain{vm: domain, name: vm.Name, uuid: vm.UUID, pids: d.pids}, nil
}

// OnStop makes libvirt call stopped for each domain that ends, with its UUID and the
// reason. The reason is the end of a sentence that begins with the VM's name.
func (d *Driver) OnStop(stopped func(uuid, reason string)) error {
	_, err := d.conn.DomainEventLifecycleRegister(nil, func(_ *libvirt.Connect, vm *libvirt.Domain, e *libvirt.DomainEventLifecycle) {
		if e.Event != libvirt.DOMAIN_EVENT_STOPPED {
			return
		}
		if uuid, err := vm.GetUUIDString(); err == nil {
			stopped(uuid, stopReason(libvirt.DomainEventStoppedDetailType(e.Detail)))
		}
	})
	if err != nil {
		return fmt.Errorf("watch domains: %w", plain(err))
	}
	return nil
}

// QEMUEnded is the reason if QEMU is gone and libvirt knows nothing more.
const QEMUEnded = "failed: its QEMU process ended"

func stopReason(detail libvirt.DomainEventStoppedDetailType) string {
	switch detail {
	case libvirt.DOMAIN_EVENT_STOPPED_SHUTDOWN:
		return "powered itself off"
	case libvirt.DOMAIN_EVENT_STOPPED_CRASHED:
		return "crashed"
	case libvirt.DOMAIN_EVENT_STOPPED_FAILED:
		return QEMUEnded
	}
	return "was stopped"
}

// plain leaves out the numbers that libvirt's errors begin with.
func plain(err error) error {
	var e libvirt.Error
	if errors.As(err, &e) && e.Message != "" {
		return errors.New(e.Message)
	}
	return err
}
