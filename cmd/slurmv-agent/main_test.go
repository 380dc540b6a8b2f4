package main

import (
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/config"
)

func TestVersion(t *testing.T) {
	var out strings.Builder
	root := newRoot()
	root.SetOut(&out)
	root.SetArgs([]string{"--version"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	if want := "slurmv-agent version " + config.Version + "\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
