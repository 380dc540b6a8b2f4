package vmlaunch

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// noRoot makes uid 0 an ordinary user of files: no program that is started gets a
// capability for being root's, and nothing makes that undone.
const noRoot = cap.SecbitNoRoot | cap.SecbitNoRootLocked |
	cap.SecbitNoSetUIDFixup | cap.SecbitNoSetUIDFixupLocked |
	cap.SecbitKeepCapsLocked |
	cap.SecbitNoCapAmbientRaise | cap.SecbitNoCapAmbientRaiseLocked

// shedPrivileges takes from this process, for good, what it needs no more once its VMs
// run. The calls reach all threads, those of libvirt too. Files it opens from then on are
// root's own: it cannot pass over permissions any more.
func shedPrivileges(keep []cap.Value) error {
	_, err := cap.Prctlw(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		err = noRoot.Set()
	}
	if err == nil {
		err = cap.DropBound(allCapabilities()...)
	}
	if err == nil {
		err = keepOnly(keep)
	}
	if err != nil {
		return fmt.Errorf("give up the privileges that the agent needs no more: %w", err)
	}
	return nil
}

// keepOnly gives up all capabilities but those.
func keepOnly(keep []cap.Value) error {
	set := cap.NewSet()
	err := errors.Join(set.SetFlag(cap.Permitted, true, keep...), set.SetFlag(cap.Effective, true, keep...))
	if err != nil {
		return err
	}
	return set.SetProc()
}

// allCapabilities are those that this kernel knows.
func allCapabilities() []cap.Value {
	all := make([]cap.Value, cap.MaxBits())
	for i := range all {
		all[i] = cap.Value(i)
	}
	return all
}

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
func (n *Node) shed() error {
	keep := needed(mountInfo())
	if n.network.Nodes > 1 {
		keep = neededForMap(mountInfo())
	}
	return shedPrivileges(keep)
}

// shedForMap gives up what only the map takes. An agent that cannot do that has all its
// VMs running, and no less than before.
func (n *Node) shedForMap() {
	if n.network.Nodes <= 1 {
		return
	}
	if err := keepOnly(needed(mountInfo())); err != nil {
		n.log.Warn("privileges are not given up", "error", err)
	}
}
