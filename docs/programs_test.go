package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every program of the packages is in the administrators' table of what goes on which host.
func TestAdministratorsReadWhereEachProgramGoes(t *testing.T) {
	table := section(t, "admin.md", "## What goes where")
	lists, err := filepath.Glob("../packaging/debian/*.install")
	if err != nil || len(lists) == 0 {
		t.Fatal("no lists of the packages' files", err)
	}
	program := regexp.MustCompile(`(?m)^usr/libexec/slurm-v/\S+$`)
	for _, list := range lists {
		files, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range program.FindAllString(string(files), -1) {
			if name := path.Base(file); !strings.Contains(table, "`"+name+"`") {
				t.Errorf("%s of %s is in no row", name, list)
			}
		}
	}
}
