package serve

import (
	"strings"

	"kernel.org/pub/linux/libs/security/libcap/cap"

	"github.com/slurm-v/slurm-v/internal/mountinfo"
	"github.com/slurm-v/slurm-v/internal/privileges"
)

// needed returns the capabilities that the agent needs to serve the VMs.
func needed(mounts []mountinfo.Mount) []cap.Value {
	// libvirt reports a VM's end once kill(2) has shown that QEMU is gone. QEMU runs as
	// another user, so this needs the capability.
	keep := []cap.Value{cap.KILL}
	if hidesProcesses(mounts) {
		keep = append(keep, cap.SYS_PTRACE) // to read /proc/PID/cgroup of callers
	}
	return keep
}

// neededForMap returns the capabilities that the agent needs until the map with the
// addresses of the job's other nodes has come.
func neededForMap(mounts []mountinfo.Mount) []cap.Value {
	return append(needed(mounts), cap.NET_ADMIN)
}

// hidesProcesses reports whether /proc shows the processes of other users only to those who
// may trace them (hidepid).
func hidesProcesses(mounts []mountinfo.Mount) bool {
	for _, m := range mounts {
		if m.Point != "/proc" {
			continue
		}
		if _, value, found := strings.Cut(m.Options, "hidepid="); found && !strings.HasPrefix(value, "0") && !strings.HasPrefix(value, "off") {
			return true
		}
	}
	return false
}

// mounts returns the mounts of the node, none if they cannot be read. hidesProcesses then
// reports false.
func mounts() []mountinfo.Mount {
	all, _ := mountinfo.Read("/")
	return all
}

// shed gives up the privileges that serving does not need.
func (s *Server) shed() error {
	keep := needed(mounts())
	if s.plan.HasPeers() {
		keep = neededForMap(mounts())
	}
	return privileges.Shed(keep)
}

// shedForMap gives up the privileges that only the map needed. If it cannot, the agent goes
// on with them: all its VMs are running.
func (s *Server) shedForMap() {
	if !s.plan.HasPeers() {
		return
	}
	if err := privileges.KeepOnly(needed(mounts())); err != nil {
		s.set.Log.Warn("privileges are not given up", "error", err)
	}
}
