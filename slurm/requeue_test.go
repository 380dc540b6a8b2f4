package slurm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// commands makes a directory of Slurm's commands, which are the given shell scripts. In
// the scripts, $HERE is that directory.
func commands(t *testing.T, scripts map[string]string) (bin string) {
	t.Helper()
	bin = t.TempDir()
	for name, script := range scripts {
		text := "#!/bin/sh\nHERE='" + bin + "'\n" + script
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return bin
}

func TestRequeueElsewhere(t *testing.T) {
	bin := commands(t, map[string]string{
		// The third answer is that the job is pending.
		"squeue": `echo asked >> $HERE/asked
state=RUNNING
test $(wc -l < $HERE/asked) -lt 3 || state=PENDING
echo "43|41|1|6002|6003|0|1|1|1|$state|n1"`,
		"scontrol": `test "$2" != show || { echo "JobId=43 ReqNodeList=(null) ExcNodeList=n7 NodeList=n1"; exit; }
printf '%s|' "$@" >> $HERE/told; echo >> $HERE/told`,
	})
	if err := (Client{Bin: bin}).RequeueElsewhere(t.Context(), 43, "n1", "not here"); err != nil {
		t.Fatal(err)
	}
	told, err := os.ReadFile(filepath.Join(bin, "told"))
	const want = "requeuehold|41_1|\nupdate|jobid=41_1|excnodelist=n7,n1|admincomment=not here|\nrelease|41_1|\n"
	if err != nil || string(told) != want {
		t.Errorf("scontrol was told %q, %v; want %q", told, err, want)
	}
}

func TestAJobThatStaysIsNotWaitedFor(t *testing.T) {
	bin := commands(t, map[string]string{"squeue": `echo "43|43|N/A|6002|6003|0|1|1|1|RUNNING|n1"`, "scontrol": ""})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := (Client{Bin: bin}).RequeueElsewhere(ctx, 43, "n1", "")
	if !errors.Is(err, context.DeadlineExceeded) && (err == nil || !strings.Contains(err.Error(), "killed")) {
		t.Errorf("error = %v", err)
	}
}

func TestExcludedIn(t *testing.T) {
	for text, want := range map[string]string{
		"JobId=7 ReqNodeList=(null) ExcNodeList=(null) NodeList=n1": "",
		"JobId=7 ReqNodeList=n1 ExcNodeList=n[3-4] NodeList=n1":     "n[3-4]",
		"JobId=7": "",
	} {
		if got := excludedIn(text); got != want {
			t.Errorf("%s excludes %q, want %q", text, got, want)
		}
	}
}

func TestWithNode(t *testing.T) {
	for list, want := range map[string]string{"": "n2", "n1": "n1,n2", "n[3-4]": "n[3-4],n2", "n1,n2": "n1,n2"} {
		if got := withNode(list, "n2"); got != want {
			t.Errorf("withNode(%q) = %q, want %q", list, got, want)
		}
	}
}
