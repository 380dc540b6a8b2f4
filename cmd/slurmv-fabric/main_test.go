package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// An administrator asks outside of slurmctld, where no job has a wish.
func TestHelpNeedsNoJob(t *testing.T) {
	if os.Getenv("SLURMV_TEST_HELP") != "" {
		os.Args = []string{"slurmv-fabric", "--help"}
		main()
		os.Exit(0)
	}
	help := exec.Command(os.Args[0], "-test.run=^TestHelpNeedsNoJob$")
	help.Env = append(os.Environ(), "SLURMV_TEST_HELP=1")
	out, err := help.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "usage: slurmv-fabric reserve|release|sweep") {
		t.Errorf("%v:\n%s", err, out)
	}
}
