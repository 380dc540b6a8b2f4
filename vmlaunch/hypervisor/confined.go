package hypervisor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/internal/process"
)

// checkConfined compares a QEMU's /proc/PID/status with the rights of its owner: a guest
// that breaks out of QEMU must gain no more than them. libvirt confines QEMU depending on
// its configuration, on its build and on QEMU's features, and does not report when it
// leaves something out.
func checkConfined(status string, as owner.Owner) error {
	has := process.ParseStatus(status)
	uid, gid := strconv.Itoa(int(as.UID)), strconv.Itoa(int(as.GID))
	switch {
	case !all(has["Uid"], 4, uid):
		return fmt.Errorf("QEMU runs with uid %s instead of %s: libvirt ignored the domain's label", list(has["Uid"]), uid)
	case !all(has["Gid"], 4, gid):
		return fmt.Errorf("QEMU runs with gid %s instead of %s: libvirt ignored the domain's label", list(has["Gid"]), gid)
	}
	if more := groupsBeyond(has["Groups"], as); len(more) > 0 {
		return fmt.Errorf("QEMU has groups that its owner %s is not in: %s", as.Name, list(more))
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
		if !all(has[set], 1, noCapabilities) {
			return fmt.Errorf("QEMU has capabilities, %s %s: libvirt did not take them away", set, list(has[set]))
		}
	}
	switch {
	case !all(has["Seccomp"], 1, "2"):
		return fmt.Errorf("QEMU runs without a filter of its system calls (Seccomp: %s): install a QEMU that was built with seccomp", list(has["Seccomp"]))
	case !all(has["NoNewPrivs"], 1, "1"):
		return fmt.Errorf("QEMU may gain privileges by a program that it starts (NoNewPrivs: %s): its filter does not forbid them (elevateprivileges)", list(has["NoNewPrivs"]))
	}
	return nil
}

// checkCgroups compares the /proc/PID/cgroup of a QEMU with that of the agent, which has
// started it: outside of the step's cgroups, Slurm neither limits nor ends QEMU.
func checkCgroups(its, own string) error {
	there := strings.Split(its, "\n")
	for line := range strings.Lines(own) {
		if line = strings.TrimSuffix(line, "\n"); !slices.Contains(there, line) {
			return fmt.Errorf("QEMU is not in the agent's cgroup %s: a service of this node, such as systemd-machined, has moved it out of the job", line)
		}
	}
	return nil
}

const noCapabilities = "0000000000000000"

// all reports whether words has count words and each equals want.
func all(words []string, count int, want string) bool {
	return len(words) == count && !slices.ContainsFunc(words, func(w string) bool { return w != want })
}

// groupsBeyond returns the groups that the owner is not in. QEMU may have fewer groups than
// the owner: libvirt knows only the job's group and those of the owner's account.
func groupsBeyond(groups []string, as owner.Owner) (more []string) {
	for _, g := range groups {
		gid, err := strconv.ParseUint(g, 10, 32)
		if err != nil || uint32(gid) != as.GID && !slices.Contains(as.GroupIDs(), uint32(gid)) {
			more = append(more, g)
		}
	}
	return more
}

// list formats words for a message.
func list(words []string) string {
	if len(words) == 0 {
		return "unknown"
	}
	return strings.Join(words, " ")
}
