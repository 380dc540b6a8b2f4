// Package slurmtest helps tests that compare with the Slurm of this machine.
package slurmtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// SrunHelp returns srun --help of this machine. srun needs some slurm.conf for it.
func SrunHelp(t *testing.T) string {
	t.Helper()
	srun, err := exec.LookPath("srun")
	if err != nil {
		t.Skip("srun is not installed: apt-get install slurm-client")
	}
	conf := filepath.Join(t.TempDir(), "slurm.conf")
	text := "ClusterName=c\nSlurmctldHost=localhost\nNodeName=n CPUs=1\nPartitionName=p Nodes=n\n"
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(srun, "--help")
	cmd.Env = append(os.Environ(), "SLURM_CONF="+conf)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("srun --help: %v", err)
	}
	return string(out)
}
