package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// printed is what a job prints, with all parts but one.
func printed(without string) string {
	var text strings.Builder
	for i, library := range libraries {
		for k, way := range ways {
			if part := library + ": " + way; part != without {
				fmt.Fprintf(&text, "== %s\nslurm-v: 2 VMs ready in 9.1 s\n8 %d.50\n64 100\n", part, 1+100*i+10*k)
			}
		}
	}
	return text.String()
}

func TestReport(t *testing.T) {
	out := t.TempDir()
	if err := run(strings.NewReader(printed("")), out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(out, "mpi-messages.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"- MPICH takes **1.50 µs** by shared memory between VMs, which is 0.13 times the time in one VM; TCP takes 21 times as long.\n",
		"| 8 | 101.50 | 111.50 | 121.50 | 131.50 | 0.1 |\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in the report:\n%s", want, text)
		}
	}
}

func TestAMissingPartIsAnError(t *testing.T) {
	err := run(strings.NewReader(printed("Open MPI: one VM")), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "no measurement of Open MPI by one VM") {
		t.Errorf("error = %v", err)
	}
}
