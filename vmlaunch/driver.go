//go:build !noguests

package vmlaunch

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// driver names libvirt's driver for the VMs of one job, which keeps all its files
// below root.
func driver(root string) string { return "qemu:///embed?root=" + root }

// dialPort connects to the socket on which QEMU offers a port of a VM.
func dialPort(socket string) (net.Conn, error) { return net.Dial("unix", socket) }

// emulator is the directory below /proc of the VM's QEMU.
func (n *Node) emulator(m *machine) (string, error) {
	pid, err := os.ReadFile(filepath.Join(n.plan.Run, "libvirt", "run", "qemu", m.plan.Domain+".pid"))
	return filepath.Join("/proc", strings.TrimSpace(string(pid))), err
}

// checkOwner makes sure that QEMU is the job's owner and nothing more: were the label
// ever ignored, a guest that breaks out would be root.
func (n *Node) checkOwner(m *machine) error {
	dir, err := n.emulator(m)
	if err != nil {
		return err
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return err
	}
	if domainOf(dir) != m.plan.UUID {
		return fmt.Errorf("process %s, which libvirt has started, is not its QEMU", filepath.Base(dir))
	}
	return checkConfined(string(status), n.plan.Owner)
}
