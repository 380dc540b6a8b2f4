package vmnet

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
)

// A PortHolder is a process that has a UDP port.
type PortHolder struct {
	PID     int
	Program string
	User    string
}

func (h PortHolder) String() string {
	return fmt.Sprintf("process %d (%s) of user %s", h.PID, h.Program, h.User)
}

// portTaken returns an error that names the process with the port that VXLAN needs.
func portTaken(port uint16) error {
	if h, found := HolderOf(port); found {
		return fmt.Errorf("UDP port %d, which VXLAN needs, is taken by %s; end it, or choose another vxlan_port", port, h)
	}
	return fmt.Errorf("UDP port %d, which VXLAN needs, is taken, and no process has it: by another network device, then "+
		"(ip -d link show type vxlan); choose another vxlan_port", port)
}

// HolderOf finds the process that has a UDP port in the network namespace of the
// calling thread. Sockets of the kernel itself, such as VXLAN's, belong to no process.
func HolderOf(port uint16) (PortHolder, bool) {
	for inode, uid := range socketsOn(port) {
		if pid, found := processWith("socket:[" + inode + "]"); found {
			return PortHolder{PID: pid, Program: programOf(pid), User: nameOf(uid)}, true
		}
	}
	return PortHolder{}, false
}

// socketsOn returns the owners of a port's sockets, by inode.
func socketsOn(port uint16) map[string]string {
	owners := map[string]string{}
	for _, table := range []string{"udp", "udp6"} {
		text, _ := os.ReadFile("/proc/thread-self/net/" + table)
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) > 9 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				owners[f[9]] = f[7]
			}
		}
	}
	return owners
}

// processWith returns a process that has an open file which /proc shows as file.
func processWith(file string) (pid int, found bool) {
	descriptors, _ := filepath.Glob("/proc/[0-9]*/fd")
	for _, dir := range descriptors {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if target, _ := os.Readlink(filepath.Join(dir, e.Name())); target == file {
				pid, err := strconv.Atoi(strings.Split(dir, "/")[2])
				return pid, err == nil
			}
		}
	}
	return 0, false
}

// programOf returns a process's name for messages. The process could have chosen any
// name.
func programOf(pid int) string {
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	quoted := strconv.Quote(strings.TrimSpace(string(name)))
	return quoted[1 : len(quoted)-1]
}

func nameOf(uid string) string {
	if account, err := user.LookupId(uid); err == nil {
		return account.Username
	}
	return uid
}
