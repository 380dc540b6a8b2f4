package vfpool

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// WriteTable prints the PFs and then their VFs, a line each. "-" stands for what is unknown or not there.
func WriteTable(out io.Writer, pfs []PF) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PF\tKIND\tDRIVER\tLINK\tNUMA\tVFS\tTAKEN\tCAPACITY\tFREE\tNOTE")
	for _, pf := range pfs {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\n", pf.Name, pf.Kind, cmp.Or(pf.Driver, "-"), link(pf), number(pf.NUMA),
			pf.CapVFs, pf.UsedVFs, pf.Capacity, pf.Capacity-min(pf.Used, pf.Capacity), cmp.Or(note(pf), "-"))
	}
	fmt.Fprintln(t, "\nPF\tVF\tPCI\tJOB\tVM\tADDRESS\tTAG\tMIN\tMAX\tSTATE")
	for _, pf := range pfs {
		for _, vf := range pf.VFs {
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\n", pf.Name, vf.Index, cmp.Or(vf.PCI, "-"), cmp.Or(vf.Job, "-"), number(vf.VM),
				cmp.Or(vf.PortGUID, vf.MAC, "-"), tag(vf), vf.MinRate, vf.MaxRate, vfState(vf))
		}
	}
	return t.Flush()
}

// tag is what the VF's messages have: a P_Key on InfiniBand, or a VLAN.
func tag(vf VF) string {
	if vf.PKey != 0 {
		return fmt.Sprintf("%#04x", vf.PKey)
	}
	return strconv.Itoa(int(vf.VLAN))
}

func link(pf PF) string {
	if !pf.Up {
		return "down"
	}
	return strconv.FormatUint(uint64(pf.Speed), 10)
}

// note is the text about a PF beside its numbers.
func note(pf PF) string {
	if pf.Unusable != "" {
		return pf.Unusable
	}
	return strings.Join(pf.Notes, "; ")
}

// number shows a negative number, which means unknown, as "-".
func number(n int) string {
	if n < 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

func vfState(vf VF) string {
	switch {
	case vf.Quarantine != "":
		return "quarantined: " + vf.Quarantine
	case vf.Allocated:
		return string(vf.State)
	case vf.Unusable != "":
		return "unusable: " + vf.Unusable
	}
	return "free"
}
