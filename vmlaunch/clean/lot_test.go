package clean

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/slurm"
)

// In each round of health checks, one node looks into the cloud. Whoever cleans a node by hand does, too.
func TestWhoAsksTheCloud(t *testing.T) {
	for name, tt := range map[string]struct {
		backend config.BackendType
		parent  string
		nodes   int // that Slurm has; 0 if it does not say
		want    bool
		draws   bool // now and then
		fails   bool
	}{
		"by hand":                      {backend: config.BackendOpenStack, parent: "bash", want: true},
		"a health check of one node":   {backend: config.BackendOpenStack, parent: "slurmd", nodes: 1, want: true},
		"a health check of many nodes": {backend: config.BackendOpenStack, parent: "slurmd", nodes: 10, draws: true},
		"Slurm does not answer":        {backend: config.BackendOpenStack, parent: "slurmd", fails: true},
		"without OpenStack":            {parent: "slurmd", nodes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir, asked, rounds := t.TempDir(), 0, 3
			if tt.draws {
				rounds = 200 // that all of so many ask, or none, is no accident
			}
			write(t, dir, "scontrol", 0o755, fmt.Sprintf("#!/bin/sh\ntest %d != 0 && echo 'PartitionName=p Nodes=n[1-%[1]d]'\n", tt.nodes))
			cfg := config.Config{}
			cfg.Backend.Type = tt.backend
			node := Node{Config: cfg, Client: slurm.Client{Bin: dir}, Name: "n1"}
			proc := startedBy(t, tt.parent)
			for range rounds {
				asks, err := node.asksCloud(t.Context(), proc)
				if (err != nil) != tt.fails {
					t.Fatal(err)
				}
				if asks {
					asked++
				}
			}
			if tt.draws && (asked == 0 || asked == rounds) || !tt.draws && (asked == rounds) != tt.want {
				t.Errorf("%d of %d ask", asked, rounds)
			}
		})
	}
}

// startedBy is a /proc in which a program of that name has started this process.
func startedBy(t *testing.T, program string) string {
	t.Helper()
	proc, own := t.TempDir(), strconv.Itoa(os.Getpid())
	for _, dir := range []string{own, "1"} {
		if err := os.Mkdir(filepath.Join(proc, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, proc, own+"/status", 0o644, "PPid:\t1\n")
	write(t, proc, "1/status", 0o644, "PPid:\t0\n")
	write(t, proc, "1/comm", 0o644, program+"\n")
	return proc
}

// A node of a large cluster is drawn in one of sixty checks, so that few nodes with OpenStack do not wait for days.
func TestIsDrawn(t *testing.T) {
	const draws = 60_000
	for nodes, want := range map[int]int{0: draws, 1: draws, 10: draws / 10, 60: draws / 60, 5000: draws / 60} {
		got := 0
		for range draws {
			if isDrawn(nodes) {
				got++
			}
		}
		if got < want*7/10 || got > want*13/10 {
			t.Errorf("of %d nodes, one is drawn in %d of %d checks, want about %d", nodes, got, draws, want)
		}
	}
}
