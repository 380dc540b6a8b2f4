package cxi

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/internal/cpulist"
)

// A Row is a service as `slurmv fabric list` prints it: one that is the same on several
// cards, its ID included, is one row.
type Row struct {
	Cards []string `json:"cards"`
	Service
}

// Rows merges services. They are in the order in which they first appear in all.
func Rows(all []Placed) (rows []Row) {
	for _, s := range all {
		i := slices.IndexFunc(rows, func(r Row) bool { return reflect.DeepEqual(r.Service, s.Service) })
		if i < 0 {
			i, rows = len(rows), append(rows, Row{Service: s.Service})
		}
		rows[i].Cards = append(rows[i].Cards, s.Card)
	}
	return rows
}

// WriteTable prints the rows, a line each, with what is reserved of each resource, or with
// what can be had at most. "-" stands for no restriction.
func WriteTable(out io.Writer, rows []Row, most bool) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "CARDS\tID\tKIND\tSTATE\tMEMBERS\tVNIS\tCLASSES\t%s\n", strings.Join(resourceNames[:], "\t"))
	for _, r := range rows {
		cells := []string{cardSet(r.Cards), fmt.Sprint(r.ID), r.kind(), r.state(), r.members(), r.vnis(), r.classes()}
		fmt.Fprintln(t, strings.Join(append(cells, r.amounts(most)...), "\t"))
	}
	return t.Flush()
}

func (s Service) kind() string {
	switch {
	case s.ID == DefaultService:
		return "default"
	case s.System:
		return "system"
	}
	return "user"
}

func (s Service) state() string {
	if s.Enabled {
		return "enabled"
	}
	return "disabled"
}

func (s Service) members() string {
	return list(s.Members, func(m Member) string { return fmt.Sprintf("%s:%d", m.Kind, m.ID) })
}

func (s Service) vnis() string {
	return list(s.VNIs, func(vni fabric.Tag) string { return fmt.Sprint(vni) })
}

func (s Service) classes() string {
	return list(s.Classes, func(c fabric.Class) string { return string(c) })
}

// list joins what a service is restricted to.
func list[T any](values []T, text func(T) string) string {
	if values == nil {
		return "-"
	}
	var texts []string
	for _, v := range values {
		texts = append(texts, text(v))
	}
	if texts == nil {
		return "none"
	}
	return strings.Join(texts, ",")
}

func (s Service) amounts(most bool) []string {
	cells := make([]string, numResources)
	for r := range cells {
		switch {
		case s.Limits == nil:
			cells[r] = "-"
		case most:
			cells[r] = fmt.Sprint(s.Limits[r].Max)
		default:
			cells[r] = fmt.Sprint(s.Limits[r].Reserved)
		}
	}
	return cells
}

// cardSet writes card names as Slurm writes names of nodes: "cxi[0-3,5]".
func cardSet(names []string) string {
	var numbers []int
	for _, name := range names {
		n, err := strconv.Atoi(strings.TrimPrefix(name, "cxi"))
		if err != nil || fmt.Sprintf("cxi%d", n) != name {
			return strings.Join(names, ",")
		}
		numbers = append(numbers, n)
	}
	if len(numbers) == 1 {
		return names[0]
	}
	return "cxi[" + cpulist.Format(numbers) + "]" // Slurm's and the kernel's lists look alike
}
