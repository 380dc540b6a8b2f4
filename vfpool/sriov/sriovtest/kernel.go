package sriovtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/durable"
	"github.com/slurm-v/slurm-v/internal/owner"
)

const vfioPCI = "vfio-pci"

// busyTimes is how often a card that is slow says so after a reset.
const busyTimes = 2

// kernel is the [sriov.Kernel] of a node.
type kernel struct{ *Node }

// Write is what the kernel does when something is written to sysfs.
func (n kernel) Write(path, value string) error {
	file := filepath.Base(path)
	if in := filepath.Base(filepath.Dir(path)); in == "pkey_idx" || in == "admin_guids" {
		file = in
	}
	if err := n.effect("write " + file); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	if _, err := os.Stat(path); err != nil {
		return err
	}
	switch file {
	case "pkey_idx", "admin_guids":
		return n.writeTable(file, path, value)
	case "driver_override":
		return n.overrideTo(path, value)
	case "reset":
		return n.reset(filepath.Base(filepath.Dir(path)))
	case "drivers_probe":
		return n.probe(value)
	case "sriov_drivers_autoprobe":
		return replace(path, value+"\n")
	case "sriov_numvfs":
		return n.setVFs(filepath.Base(filepath.Dir(path)), value)
	case "unbind":
		return n.unbind(value, filepath.Base(filepath.Dir(path)))
	default:
		return &fs.PathError{Op: "write", Path: path, Err: unix.EACCES}
	}
}

// setVFs makes or removes the VFs of a PF. From one number to another the kernel goes by 0.
func (n kernel) setVFs(pci, value string) error {
	want, err := strconv.Atoi(value)
	i := slices.IndexFunc(n.cards, func(c Card) bool { return c.PCI == pci })
	if err != nil || i < 0 {
		return unix.EINVAL
	}
	c := n.cards[i]
	switch {
	case want > c.TotalVFs:
		return unix.ERANGE
	case want == c.VFs:
		return nil
	case want != 0 && c.VFs != 0:
		return unix.EBUSY
	case want == 0:
		return firstError(n.removeVFs(c), n.resize(i, 0))
	}
	return firstError(n.resize(i, want), n.buildVFs(n.cards[i], 100*(i+1)))
}

func (n kernel) removeVFs(c Card) (err error) {
	for i := range c.VFs {
		err = firstError(err, n.Vanish(c.VF(i)), os.Remove(n.device(c.PCI, fmt.Sprintf("virtfn%d", i))))
	}
	return err
}

// resize sets how many VFs a card has. New ones get a driver only if the PF's files say so.
func (n kernel) resize(i, vfs int) error {
	c := &n.cards[i]
	c.VFs = vfs
	if text, _ := os.ReadFile(n.device(c.PCI, "sriov_drivers_autoprobe")); string(text) == "0\n" {
		c.HostDriver = ""
	}
	return firstError(n.saveCards(), replace(n.device(c.PCI, "sriov_numvfs"), fmt.Sprintln(vfs)))
}

func (kernel) overrideTo(path, driver string) error {
	if driver == "" {
		driver = "(null)"
	}
	return replace(path, driver+"\n")
}

// replace writes a file as the kernel would its own: the process may be killed
// before or after, and never between.
func replace(path, text string) error {
	next := path + ".next"
	return firstError(os.WriteFile(next, []byte(text), 0o644), os.Rename(next, path))
}

func (n kernel) reset(pci string) error {
	if n.held(pci) {
		return unix.EDEADLK // the kernel would do it, under the guest's feet
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

// probe lets the driver that may have the device have it.
func (n kernel) probe(pci string) error {
	if _, err := os.Stat(n.device(pci)); err != nil {
		return unix.EINVAL
	}
	text, _ := os.ReadFile(n.device(pci, "driver_override"))
	driver := strings.TrimSpace(string(text))
	if c, _, ok := n.cardOf(pci); ok && driver == "(null)" {
		driver = c.HostDriver
	}
	if _, err := os.Stat(n.path("sys/bus/pci/drivers", driver)); err != nil || driver == "" {
		return nil // as the kernel: nobody took it, which is no error
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

// chooseMAC is what drivers of VFs do that have none; the PF then says the same.
func (n *Node) chooseMAC(pci string) error {
	c, i, ok := n.cardOf(pci)
	v, err := n.load(pci)
	if err != nil || !ok || !models[c.model()].ownMAC || v.Settings.MAC != zeroMAC {
		return err
	}
	v.Settings.MAC = fmt.Sprintf("0a:00:00:00:00:%02x", i)
	return n.save(pci, v)
}

func (n kernel) unbind(pci, driver string) error {
	if link, _ := os.Readlink(n.device(pci, "driver")); filepath.Base(link) != driver {
		return unix.ENODEV
	}
	if n.held(pci) {
		return unix.EDEADLK // the kernel would wait for the guest
	}
	_ = os.Remove(n.groupFile(pci))
	return firstError(os.RemoveAll(n.device(pci, "net")), os.Remove(n.device(pci, "driver")))
}

// A group is what the file of an IOMMU group says in this tree: its owner, which
// the tests, not being root, could not set.
type group struct {
	Owner owner.IDs
	Mode  fs.FileMode
}

// Owner is the owner of /dev/vfio/GROUP.
func (n kernel) Owner(path string) (owner.IDs, fs.FileMode, error) {
	var g group
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &g)
	}
	return g.Owner, g.Mode, err
}

// SetOwner changes it.
func (n kernel) SetOwner(path string, owner owner.IDs, mode fs.FileMode) error {
	if err := n.effect("own"); err != nil {
		return &fs.PathError{Op: "chown", Path: path, Err: err}
	}
	if _, err := os.Stat(path); err != nil {
		return err
	}
	return writeJSON(path, group{owner, mode})
}

func busy(path string) bool {
	lock, err := durable.TryLock(path, 0)
	if err == nil {
		lock.Close()
	}
	return errors.Is(err, durable.ErrLocked)
}

// Free is EBUSY while the VF is held.
func (n kernel) Free(path string) error {
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

// End tells the test who is to die.
func (n kernel) End(_ context.Context, _ string, uid uint32) error {
	err := n.effect("end")
	if err == nil && n.OnEnd != nil {
		n.OnEnd(uid)
	}
	return err
}

// Load makes a driver's directory.
func (n kernel) Load(module string) error {
	if err := n.effect("load"); err != nil {
		return err
	}
	return n.write("", "sys/bus/pci/drivers", module, "unbind")
}
