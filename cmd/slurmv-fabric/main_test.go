package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/internal/filetest"
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

const manager = `[fabric]
vni.pool = "1024-1029"
[fabric.collectives]
url = "https://fm"
token_file = "/etc/token"
addrs_per_job = 23
`

// Where a manager is asked by HTTP, the program that can do so goes on in its place, beside which it was installed.
func TestAManagerIsAskedByHTTP(t *testing.T) {
	if line := os.Getenv("SLURMV_TEST_LINE"); line != "" {
		os.Args = strings.Fields(line)
		main()
		os.Exit(0)
	}
	dir := t.TempDir()
	self, path := filepath.Join(dir, "slurmv-fabric"), filepath.Join(dir, "slurmv.toml")
	if err := os.Link(os.Args[0], self); err != nil {
		t.Fatal(err)
	}
	filetest.Write(t, path, manager)
	filetest.Write(t, filepath.Join(dir, "slurmv-ledger"), "#!/bin/sh\necho $SPANK_SLURMV_FABRIC: $*\n")
	if err := os.Chmod(filepath.Join(dir, "slurmv-ledger"), 0o755); err != nil {
		t.Fatal(err)
	}
	for verb, more := range map[string]string{"reserve": "", "release": "", "sweep": " --until-quiet"} {
		c := exec.Command(self, "-test.run=^TestAManagerIsAskedByHTTP$")
		c.Env = append(os.Environ(), fabric.WishVariable+"=vni:1", "SLURMV_TEST_LINE=slurmv-fabric "+verb+" --config "+path)
		out, err := c.CombinedOutput()
		if want := "vni:1: fabric " + verb + " --config " + path + more + "\n"; err != nil || string(out) != want {
			t.Errorf("%s: %v, %q, want %q", verb, err, out, want)
		}
	}
}
