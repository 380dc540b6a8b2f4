package serve

import (
	"os"
	"strings"

	"kernel.org/pub/linux/libs/security/libcap/cap"

	"github.com/slurm-v/slurm-v/internal/privileges"
)

// needed returns the capabilities that the agent needs to serve the VMs.
func needed(mountInfo string) []cap.Value {
	// libvirt reports a VM's end once kill(2) has shown that QEMU is gone. QEMU runs as
	// another user, so this needs the capability.
	keep := []cap.Value{cap.KILL}
	if hidesProcesses(mountInfo) {
		keep = append(keep, cap.SYS_PTRACE) // to read /proc/PID/cgroup of callers
	}
	return keep
}

// neededForMap returns the capabilities that the agent needs until the map with the
// addresses of the job's other nodes has come.
func neededForMap(mountInfo string) []cap.Value {
	return append(needed(mountInfo), cap.NET_ADMIN)
}

// hidesProcesses reports whether /proc shows the processes of other users only to those who
// may trace them (hidepid), from the text of /proc/self/mountinfo.
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

// mountInfo returns the text of /proc/self/mountinfo, "" if it cannot be read.
// hidesProcesses then reports false.
func mountInfo() string {
	text, _ := os.ReadFile("/proc/self/mountinfo")
	return string(text)
}

// shed gives up the privileges that serving does not need.
func (s *Server) shed() error {
	keep := needed(mountInfo())
	if s.plan.HasPeers() {
		keep = neededForMap(mountInfo())
	}
	return privileges.Shed(keep)
}

// shedForMap gives up the privileges that only the map needed. If it cannot, the agent goes
// on with them: all its VMs are running.
func (s *Server) shedForMap() {
	if !s.plan.HasPeers() {
		return
	}
	if err := privileges.KeepOnly(needed(mountInfo())); err != nil {
		s.set.Log.Warn("privileges are not given up", "error", err)
	}
}
