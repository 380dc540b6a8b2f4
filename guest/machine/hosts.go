package machine

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/guest"
)

const (
	hostsBegin = "# slurm-v: the VMs of this job, written by slurmv-guest"
	hostsEnd   = "# slurm-v: end"
)

// SetHosts writes the names of the job's VMs into /etc/hosts, and tells the kernel those
// hardware addresses that hosts has.
func (m *Machine) SetHosts(_ context.Context, hosts []guest.Host) error {
	for _, h := range hosts {
		if _, err := netip.ParseAddr(h.Address); err != nil || !validName(h.Name) {
			return fmt.Errorf("write /etc/hosts: %.80q %.80q is not an address and a name", h.Address, h.Name)
		}
	}
	if err := edit(m.path("etc/hosts"), func(text string) string { return withHosts(text, hosts) }); err != nil {
		return err
	}
	if slices.ContainsFunc(hosts, func(h guest.Host) bool { return h.MAC != "" }) {
		return m.setNeighbours(hosts)
	}
	return nil
}

// withHosts is the text of /etc/hosts with a block of the job's VMs. The block comes first,
// so that it wins. Debian's line that maps the machine's own name to 127.0.1.1 loses the
// names of VMs: MPI would otherwise tell the other VMs to connect to that address.
func withHosts(text string, hosts []guest.Host) string {
	lines := []string{hostsBegin}
	var names []string
	for _, h := range hosts {
		lines = append(lines, h.Address+"\t"+h.Name)
		names = append(names, h.Name)
	}
	lines = append(lines, hostsEnd)
	inBlock := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == hostsBegin:
			inBlock = true
		case line == hostsEnd:
			inBlock = false
		case !inBlock:
			lines = append(lines, withoutNames(line, names)...)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// withoutNames returns a line of /etc/hosts without names, if the line maps them to an
// address 127.x other than 127.0.0.1. It returns nothing if no name is left.
func withoutNames(line string, names []string) []string {
	fields := strings.Fields(line)
	if len(fields) < 2 || !strings.HasPrefix(fields[0], "127.") || fields[0] == "127.0.0.1" {
		return []string{line}
	}
	kept := slices.DeleteFunc(slices.Clone(fields[1:]), func(name string) bool { return slices.Contains(names, name) })
	switch {
	case len(kept) == len(fields)-1:
		return []string{line}
	case len(kept) == 0:
		return nil
	}
	return []string{fields[0] + "\t" + strings.Join(kept, " ")}
}
