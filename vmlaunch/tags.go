package vmlaunch

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/fabric/node"
	"github.com/slurm-v/slurm-v/vfpool"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
)

// envVFs lists the VFs of the node's VMs: "vm2:0=ens1f0/3/0000:01:10.3,vm2:1=soft0/1", VM and
// number of the VF, PF, number on the PF, and PCI address on the node.
const envVFs = "SLURMV_VFS"

// environment returns the environment of a program in a VM: env with the variables about
// the job's tags and VFs.
func (v *VMs) environment(m *machine.Machine, env []string) []string {
	env = v.tags.ForGuest(env, guestCards(v.store.sysfs, m.VFs))
	env = slices.DeleteFunc(env, func(entry string) bool { return strings.HasPrefix(entry, envVFs+"=") })
	if list := listVFs(v.Machines); list != "" {
		env = append(env, envVFs+"="+list)
	}
	return env
}

func listVFs(machines []*machine.Machine) string {
	var list []string
	for _, m := range machines {
		for _, g := range m.VFs {
			entry := fmt.Sprintf("%s:%d=%s/%d", m.Plan.Name, g.Request.Index, g.VF.PF, g.VF.Index)
			if g.VF.PCI != "" {
				entry += "/" + g.VF.PCI
			}
			list = append(list, entry)
		}
	}
	return strings.Join(list, ",")
}

// guestCards returns the VM's Slingshot devices. The guest's driver numbers them in the
// order of their PCI addresses, which is the order of the VFs.
func guestCards(sysfs string, vfs []vfpool.Grant) (cards []node.GuestCard) {
	for _, g := range vfs {
		if g.Slingshot != "" {
			cards = append(cards, node.GuestCard{Guest: fmt.Sprintf("cxi%d", len(cards)), Card: cardAt(sysfs, g.Slingshot)})
		}
	}
	return cards
}

// cardAt returns the name of the Slingshot card with a PCI address; "" if there is none.
func cardAt(sysfs, pci string) string {
	devices, _ := filepath.Glob(filepath.Join(sysfs, "class/cxi/*/device"))
	for _, link := range devices {
		if target, err := filepath.EvalSymlinks(link); err == nil && filepath.Base(target) == pci {
			return filepath.Base(filepath.Dir(link))
		}
	}
	return ""
}
