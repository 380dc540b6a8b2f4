//go:build !noguests

package hypervisor

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/slurm-v/slurm-v/internal/owner"
)

// uri names libvirt's driver for the VMs of one job. The driver keeps all its files below
// root.
func uri(root string) string { return "qemu:///embed?root=" + root }

// Dial connects to the socket on which QEMU offers a port of a VM.
func Dial(socket string) (net.Conn, error) { return net.Dial("unix", socket) }

// Process is the directory below /proc of the VM's QEMU.
func (d *Domain) Process() (string, error) {
	pid, err := os.ReadFile(filepath.Join(d.pids, d.name+".pid"))
	return filepath.Join("/proc", strings.TrimSpace(string(pid))), err
}

// CheckConfined returns an error if QEMU has more rights than the job's owner, or is not in
// the cgroups of this process. If libvirt ever ignored the domain's label, a guest that
// breaks out would be root.
func (d *Domain) CheckConfined(as owner.Owner) error {
	dir, err := d.Process()
	if err != nil {
		return err
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return err
	}
	if domainOf(dir) != d.uuid {
		return fmt.Errorf("process %s, which libvirt has started, is not its QEMU", filepath.Base(dir))
	}
	if err := checkConfined(string(status), as); err != nil {
		return err
	}
	return isInMyCgroups(dir)
}

func isInMyCgroups(dir string) error {
	its, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	if err != nil {
		return err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	return checkCgroups(string(its), string(own))
}
