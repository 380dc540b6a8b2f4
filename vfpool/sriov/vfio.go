package sriov

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/vfpool/device"
)

const vfioPCI = "vfio-pci"

// groupMode is the mode of /dev/vfio/GROUP: a program that can open it can use the VF.
const groupMode fs.FileMode = 0o600

// A binding handles the VF's driver, and the access to its group file.
type binding struct{ *operation }

// state returns the present state of the VF.
func (o binding) state(ctx context.Context) (device.State, error) {
	card := setter(o)
	now, err := card.read(ctx)
	if errors.Is(err, ErrUnreadable) {
		now, err = card.untouched(), nil
	}
	if err != nil {
		return device.State{}, o.fail("settings", "", err, "")
	}
	now = card.restorable(now)
	s := device.State{Settings: now, Driver: o.driver(), Override: o.sys.override(o.vf.PCI)}
	owner, mode, err := o.Kernel.Owner(o.groupFile())
	if err == nil && s.Driver == vfioPCI {
		s.Owner, s.Mode = owner, uint32(mode)
	}
	return s, nil
}

// driver returns the driver that the VF is bound to.
func (o binding) driver() string { return o.sys.target(o.sys.device(o.vf.PCI), "driver") }

// groupFile returns the file that QEMU opens to use the VF.
func (o binding) groupFile() string {
	return o.sys.path("dev/vfio", o.sys.target(o.sys.device(o.vf.PCI), "iommu_group"))
}

// idle waits until no program has the VF open. Unbinding a VF in use would block in the
// kernel, and resetting it would disturb the guest.
func (o binding) idle(ctx context.Context) error {
	if o.driver() != vfioPCI {
		return nil
	}
	path := o.groupFile()
	err := o.retry(ctx, func() error { return o.Kernel.Free(path) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	advice := ""
	if errors.Is(err, unix.EBUSY) {
		advice = "a program has the VF open: end it (fuser -v " + path + ")"
	}
	return o.fail("in use", path, err, advice)
}

// reset makes the function forget all settings of a guest or a driver (FLR).
func (o binding) reset(ctx context.Context) error {
	path := filepath.Join(o.sys.device(o.vf.PCI), "reset")
	if !o.sys.exists(path) && !o.gone() {
		return nil
	}
	err := o.write(ctx, "reset", path, "1")
	o.wait()
	return err
}

// override restricts the VF to one driver; "" allows any.
func (o binding) override(driver string) func(context.Context) error {
	return func(ctx context.Context) error {
		if o.sys.override(o.vf.PCI) == driver && !o.gone() {
			return nil
		}
		return o.write(ctx, "driver_override", filepath.Join(o.sys.device(o.vf.PCI), "driver_override"), driver)
	}
}

func (o binding) unbindUnless(keep string) func(context.Context) error {
	return func(ctx context.Context) error {
		driver := o.driver()
		if driver == "" || driver == keep {
			return nil
		}
		err := o.write(ctx, "unbind "+driver, o.sys.driver(driver, "unbind"), o.vf.PCI)
		if errors.Is(err, unix.ENODEV) && o.driver() == "" && !o.gone() {
			err = nil // another process was faster
		}
		o.wait()
		return err
	}
}

// bind has the kernel bind the VF to the driver, which must be in driver_override.
func (o binding) bind(driver string) func(context.Context) error {
	return func(ctx context.Context) error {
		if o.driver() == driver {
			return nil
		}
		if err := o.write(ctx, "drivers_probe", o.sys.path("sys/bus/pci/drivers_probe"), o.vf.PCI); err != nil {
			return err
		}
		err := o.retry(ctx, func() error { return o.bound(driver) })
		return o.fail("driver", driver, err, fmt.Sprintf("modprobe %s, and see the kernel's log (dmesg) for %s", driver, o.vf.PCI))
	}
}

func (o binding) bound(driver string) error {
	switch now := o.driver(); now {
	case driver:
		return nil
	case "":
		return fmt.Errorf("the driver does not take it: %w", errNotYet)
	default:
		return fmt.Errorf("the driver %s took it", now)
	}
}

// bindAgain binds the VF to its original driver. It sets driver_override: without that,
// the kernel does not bind VFs if the administrator has set sriov_drivers_autoprobe to 0.
func (o binding) bindAgain(driver string) func(context.Context) error {
	return func(ctx context.Context) error {
		if driver == "" || o.driver() == driver {
			return nil
		}
		for _, do := range []func(context.Context) error{o.load(driver), o.override(driver), o.bind(driver)} {
			if err := do(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

func (o binding) load(driver string) func(context.Context) error {
	return func(context.Context) error {
		if o.sys.exists(o.sys.driver(driver, "")) {
			return nil
		}
		return o.fail("load", driver, o.Kernel.Load(driver), fmt.Sprintf("install the kernel's module %s, and load it at boot (/etc/modules-load.d)", driver))
	}
}

// takeBack keeps the owner from opening the VF again.
func (o binding) takeBack(ctx context.Context) error {
	if o.driver() != vfioPCI {
		return nil
	}
	if owner, _, err := o.Kernel.Owner(o.groupFile()); err == nil {
		o.taken = owner.UID
	}
	err := o.own(owner.IDs{}, groupMode)(ctx)
	if errors.Is(err, fs.ErrNotExist) && !o.gone() {
		return nil
	}
	return err
}

// evictPatience bounds the search through all processes.
const evictPatience = 10 * time.Second

// evict ends the owner's programs that have the VF open. Owners can open it with programs
// other than QEMU, and those would keep it from later jobs.
func (o binding) evict(ctx context.Context) error {
	path := o.groupFile()
	if o.taken == 0 || o.driver() != vfioPCI || !errors.Is(o.Kernel.Free(path), unix.EBUSY) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, evictPatience)
	defer cancel()
	_ = o.Kernel.End(ctx, path, o.taken) // idle finds out if one remains
	o.wait()
	return nil
}

func (o binding) giveBack(original device.State) func(context.Context) error {
	if original.Driver != vfioPCI || original.Mode == 0 {
		return func(context.Context) error { return nil }
	}
	return o.own(original.Owner, fs.FileMode(original.Mode))
}

// own makes owner the owner of /dev/vfio/GROUP.
func (o binding) own(owner owner.IDs, mode fs.FileMode) func(context.Context) error {
	return func(ctx context.Context) error {
		path := o.groupFile()
		// Wait for udev: an old one that handles the new file later would give it to
		// root.
		_ = o.retry(ctx, func() error { return notYet(o.sys.exists(o.sys.path("run/udev/queue"))) })
		err := o.retry(ctx, func() error {
			if err := o.Kernel.SetOwner(path, owner, mode); err != nil {
				return err
			}
			return o.owned(path, owner, mode)
		})
		return o.fail("owner", fmt.Sprintf("%d:%d %04o of %s", owner.UID, owner.GID, mode, path), err, "")
	}
}

func notYet(waiting bool) error {
	if waiting {
		return errNotYet
	}
	return nil
}

func (o binding) owned(path string, owner owner.IDs, mode fs.FileMode) error {
	now, has, err := o.Kernel.Owner(path)
	if err == nil && (now != owner || has != mode) {
		err = fmt.Errorf("it is %d:%d %04o", now.UID, now.GID, has)
	}
	return err
}
