package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Each rank has a relay, so it is small and starts quickly: libvirt's library alone takes 25 ms of CPU time to load.
func TestTheRelayLoadsNoLibvirt(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", "libvirt_dlopen", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(out))
	if !slices.Contains(packages, "github.com/slurm-v/slurm-v/vmstep/relay") {
		t.Errorf("it relays nothing: %q", packages)
	}
	if slices.Contains(packages, "libvirt.org/go/libvirt") {
		t.Error("slurmv-relay imports libvirt")
	}
}
