package template

import (
	"cmp"
	"fmt"
	"io"
	"os/user"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/slurm-v/slurm-v/config"
)

// WriteTable prints a line for each template.
func WriteTable(out io.Writer, all []Template) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tOWNER\tIMAGE\tVCPUS\tMEMORY\tDISK\tUSED")
	for _, v := range all {
		image := cmp.Or(v.Shape.Named, "-")
		fmt.Fprintf(t, "%.12s\t%s\t%s\t%d\t%s\t%d MiB\t%s\n", filepath.Base(v.Dir), ownerName(v.Whose), image,
			v.Shape.VCPUs, config.Size(v.Shape.Memory), v.Bytes>>20, v.Used.Format(time.DateTime))
	}
	return t.Flush()
}

// ownerName is the user's name if the owner is a user, else the owner as it is.
func ownerName(whose Whose) string {
	if account, err := user.LookupId(string(whose)); err == nil {
		return account.Username
	}
	return string(whose)
}
