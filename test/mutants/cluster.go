package main

import (
	"context"
	"path/filepath"
)

// clusterDir is that of the mutants' own cluster.
const clusterDir = "SLURMV_CLUSTER_DIR=/var/lib/slurmv-mutants"

// onCluster has scenarios run on a cluster with the tree's programs.
func (e *tester) onCluster() {
	script := filepath.Join(e.dir, "scripts", "cluster")
	e.env, e.patience, e.tags = []string{clusterDir}, "15m", e.tags+",cluster"
	e.prepare = func(ctx context.Context) error {
		_, err := output(ctx, e.dir, e.env, script, "up")
		return err
	}
	e.end = func() { _, _ = output(context.Background(), e.dir, e.env, script, "down") }
}
