package serve

import (
	"os"
	"strings"

	"kernel.org/pub/linux/libs/security/libcap/cap"

	"github.com/slurm-v/slurm-v/internal/privileges"
)

// needed are the capabilities that serving the VMs takes.
func needed(mountInfo string) []cap.Value {
	// libvirt tells of a VM's end once it has made sure by kill(2) that QEMU, which is
	// another user's, is gone.
	keep := []cap.Value{cap.KILL}
	if hidesProcesses(mountInfo) {
		keep = append(keep, cap.SYS_PTRACE) // to read /proc/PID/cgroup of callers
	}
	return keep
}

// neededForMap are those until the addresses of the job's other nodes have come with
// the map.
func neededForMap(mountInfo string) []cap.Value {
	return append(needed(mountInfo), cap.NET_ADMIN)
}

// hidesProcesses reports whether /proc shows processes of others only to those who may
// trace them (hidepid), by the text of /proc/self/mountinfo.
func hidesProcesses(mountInfo string) bool {
	for line := range strings.Lines(mountInfo) {
		fields, options, _ := strings.Cut(line, " - ")
		if f := strings.Fields(fields); len(f) < 5 || f[4] != "/proc" {
			continue
		}
		if _, value, found := strings.Cut(options, "hidepid="); found && !strings.HasPrefix(value, "0") && !strings.HasPrefix(value, "off") {
			return true
		}
	}
	return false
}

// mountInfo is what /proc/self/mountinfo says. Where it cannot be read, nothing is hidden.
func mountInfo() string {
	text, _ := os.ReadFile("/proc/self/mountinfo")
	return string(text)
}

// shed gives up what serving does not take.
func (s *Server) shed() error {
	keep := needed(mountInfo())
	if s.plan.HasPeers() {
		keep = neededForMap(mountInfo())
	}
	return privileges.Shed(keep)
}

// shedForMap gives up what only the map takes. An agent that cannot do that has all its
// VMs running, and no less than before.
func (s *Server) shedForMap() {
	if !s.plan.HasPeers() {
		return
	}
	if err := privileges.KeepOnly(needed(mountInfo())); err != nil {
		s.set.Log.Warn("privileges are not given up", "error", err)
	}
}
