package cache

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteTable prints a line for each copy.
func WriteTable(out io.Writer, all []Entry) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KEY\tOWNER\tMIB\tLAST USED\tJOBS\tIMAGE")
	for _, e := range all {
		fmt.Fprintf(t, "%.8s\t%s\t%d\t%s\t%s\t%s\n", e.Key, e.Owner, e.Bytes>>20,
			e.Used.Format("2006-01-02 15:04:05"), cmp.Or(strings.Join(e.Holders, ","), "-"), copyOf(e))
	}
	return t.Flush()
}

// copyOf names the file, and says whether its copy is unfinished.
func copyOf(e Entry) string {
	switch {
	case e.Source == "":
		return "(not begun)"
	case !e.Whole:
		return fmt.Sprintf("%s (not whole, %d MiB missing)", e.Source, e.Missing>>20)
	}
	return e.Source
}
