package sriovtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/durable"
	"github.com/slurm-v/slurm-v/internal/owner"
)

const vfioPCI = "vfio-pci"

// busyTimes is how often a slow card answers that it is busy after a reset.
const busyTimes = 2

// Write does what the kernel does when a value is written to sysfs.
func (n *Node) Write(path, value string) error {
	file := filepath.Base(path)
	if err := n.effect("write " + file); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	if _, err := os.Stat(path); err != nil {
		return err
	}
	switch file {
	case "driver_override":
		return n.overrideTo(path, value)
	case "reset":
		return n.reset(filepath.Base(filepath.Dir(path)))
	case "drivers_probe":
		return n.probe(value)
	case "unbind":
		return n.unbind(value, filepath.Base(filepath.Dir(path)))
	default:
		return &fs.PathError{Op: "write", Path: path, Err: unix.EACCES}
	}
}

func (n *Node) overrideTo(path, driver string) error {
	if driver == "" {
		driver = "(null)"
	}
	return replace(path, driver+"\n")
}

// replace writes a file atomically, as the kernel does: the process may be killed before
// or after, but not in between.
func replace(path, text string) error {
	next := path + ".next"
	return firstError(os.WriteFile(next, []byte(text), 0o644), os.Rename(next, path))
}

func (n *Node) reset(pci string) error {
	if n.held(pci) {
		return unix.EDEADLK // the kernel would reset the VF while the guest uses it
	}
	v, err := n.load(pci)
	if err != nil {
		return unix.ENODEV
	}
	c, _, _ := n.cardOf(pci)
	v.Dirty = false
	if models[c.model()].afterFLR != nil {
		v.Busy = busyTimes
	}
	return n.save(pci, v)
}

// probe binds the device to the driver that may have it.
func (n *Node) probe(pci string) error {
	if _, err := os.Stat(n.device(pci)); err != nil {
		return unix.EINVAL
	}
	text, _ := os.ReadFile(n.device(pci, "driver_override"))
	driver := strings.TrimSpace(string(text))
	if c, _, ok := n.cardOf(pci); ok && driver == "(null)" {
		driver = c.HostDriver
	}
	if _, err := os.Stat(n.path("sys/bus/pci/drivers", driver)); err != nil || driver == "" {
		return nil // as in the kernel, a device without a driver is not an error
	}
	if _, err := os.Readlink(n.device(pci, "driver")); err == nil {
		return nil
	}
	return n.bind(pci, driver)
}

func (n *Node) bind(pci, driver string) error {
	if err := n.link("../../drivers/"+driver, "sys/bus/pci/devices", pci, "driver"); err != nil {
		return err
	}
	if driver == vfioPCI {
		return writeJSON(n.groupFile(pci), group{Mode: 0o600})
	}
	return firstError(n.write("", "sys/bus/pci/devices", pci, "net", "v"+pci[5:], "operstate"), n.chooseMAC(pci))
}

// chooseMAC does what drivers of VFs without a MAC do: they choose one. The PF shows it.
func (n *Node) chooseMAC(pci string) error {
	c, i, ok := n.cardOf(pci)
	v, err := n.load(pci)
	if err != nil || !ok || !models[c.model()].ownMAC || v.Settings.MAC != zeroMAC {
		return err
	}
	v.Settings.MAC = fmt.Sprintf("0a:00:00:00:00:%02x", i)
	return n.save(pci, v)
}

func (n *Node) unbind(pci, driver string) error {
	if link, _ := os.Readlink(n.device(pci, "driver")); filepath.Base(link) != driver {
		return unix.ENODEV
	}
	if n.held(pci) {
		return unix.EDEADLK // the kernel would wait for the guest
	}
	_ = os.Remove(n.groupFile(pci))
	return firstError(os.RemoveAll(n.device(pci, "net")), os.Remove(n.device(pci, "driver")))
}

// A group is the content of an IOMMU group's file in this tree: its owner, which the
// tests could not set without being root.
type group struct {
	Owner owner.IDs
	Mode  fs.FileMode
}

func (n *Node) groupFile(pci string) string {
	link, err := os.Readlink(n.device(pci, "iommu_group"))
	if err != nil {
		return n.path("dev/vfio/none")
	}
	return n.path("dev/vfio", filepath.Base(link))
}

// Owner returns the owner of /dev/vfio/GROUP.
func (n *Node) Owner(path string) (owner.IDs, fs.FileMode, error) {
	var g group
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &g)
	}
	return g.Owner, g.Mode, err
}

// SetOwner changes the owner of /dev/vfio/GROUP.
func (n *Node) SetOwner(path string, owner owner.IDs, mode fs.FileMode) error {
	if err := n.effect("own"); err != nil {
		return &fs.PathError{Op: "chown", Path: path, Err: err}
	}
	if _, err := os.Stat(path); err != nil {
		return err
	}
	return writeJSON(path, group{owner, mode})
}

// Hold uses the VF as a QEMU does, until release is called or the process ends.
func (n *Node) Hold(pci string) (release func(), err error) {
	lock, err := durable.TryLock(n.groupFile(pci), 0)
	if err != nil {
		return nil, err
	}
	v, err := n.load(pci)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	v.Dirty = true
	return func() { lock.Close() }, n.save(pci, v)
}

func (n *Node) held(pci string) bool { return busy(n.groupFile(pci)) }

func busy(path string) bool {
	lock, err := durable.TryLock(path, 0)
	if err == nil {
		lock.Close()
	}
	return errors.Is(err, durable.ErrLocked)
}

// Free returns EBUSY while the VF is held.
func (n *Node) Free(path string) error {
	err := n.effect("open")
	if err == nil && busy(path) {
		err = unix.EBUSY
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	_, err = os.Stat(path)
	return err
}

// End tells the test whose programs are to die.
func (n *Node) End(_ context.Context, _ string, uid uint32) error {
	err := n.effect("end")
	if err == nil && n.OnEnd != nil {
		n.OnEnd(uid)
	}
	return err
}

// Load makes the directory of a driver.
func (n *Node) Load(module string) error {
	if err := n.effect("load"); err != nil {
		return err
	}
	return n.write("", "sys/bus/pci/drivers", module, "unbind")
}

// Unload removes a driver to which nothing is bound.
func (n *Node) Unload(module string) error {
	return os.RemoveAll(n.path("sys/bus/pci/drivers", module))
}
