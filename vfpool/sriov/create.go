package sriov

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/slurm-v/slurm-v/vfpool/device"
)

// Create makes n VFs of a PF, in place of those that it has, and reports whether it had
// to. It makes them without a driver: jobs get them sooner if the host has not taken them
// first. It refuses while a program or the host uses a VF. The caller makes sure that no
// job has one. The PF's link may go down for some seconds.
func (c *Cards) Create(pf device.PF, n int) (made bool, err error) {
	has := c.sys.number(0, c.sys.device(pf.PCI), "sriov_numvfs")
	switch {
	case has == n:
		return false, nil
	case n > pf.TotalVFs:
		return false, fmt.Errorf("it can have %d VFs at most (sriov_totalvfs), and the site wants %d: set vf.create_per_pf for it, or more in the card's firmware settings", pf.TotalVFs, n)
	}
	for _, vf := range pf.VFs {
		if why := cmp.Or(c.usedByHost(vf.PCI), c.usedByProgram(vf.PCI)); why.Seen != "" {
			return false, fmt.Errorf("it has %d VFs and is to have %d; of VF %d, %s: %s, then run this again", has, n, vf.Index, why.Seen, why.Advice)
		}
	}
	return true, c.remake(pf, has, n)
}

// usedByProgram says that a program which is not Slurm-V's has, or may get, a VF.
func (c *Cards) usedByProgram(pci string) device.Reason {
	if c.sys.target(c.sys.device(pci), "driver") != vfioPCI {
		return device.Reason{}
	}
	return device.Reason{Seen: "its driver is vfio-pci, by which programs have VFs", Advice: "end the program and unbind the VF"}
}

// remake removes the VFs of a PF, because the kernel changes their number only from 0, and
// makes n. Old kernels cannot make VFs without drivers.
func (c *Cards) remake(pf device.PF, has, n int) error {
	dir := c.sys.device(pf.PCI)
	if probe := filepath.Join(dir, "sriov_drivers_autoprobe"); c.sys.exists(probe) {
		if err := c.Kernel.Write(probe, "0"); err != nil {
			return err
		}
	}
	for _, number := range []int{0, n} {
		if number == has {
			continue
		}
		if err := c.Kernel.Write(filepath.Join(dir, "sriov_numvfs"), strconv.Itoa(number)); err != nil {
			return fmt.Errorf("make %d VFs: %s; the kernel's log (dmesg) says why for %s, such as too little address space (pci=realloc)", n, cause(err), pf.PCI)
		}
	}
	return nil
}
