package openstack

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Who gives up waiting for servers reads which do not run.
func TestAwaitNamesTheServersThatDoNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := func(name, status string) map[string]any {
			return map[string]any{"id": name, "name": name, "status": status, "metadata": map[string]string{"slurm-v": "slurm-v:test:7.0"}}
		}
		f := &faultyNova{servers: []map[string]any{server("slurmv-7.0-vm0", "ACTIVE"), server("slurmv-7.0-vm1", "BUILD")}}
		c := &Cloud{label: "test", nova: f.client()}
		ctx, cancel := withTimeout(t, time.Minute)
		defer cancel()
		err := c.Await(ctx, "7.0", 2)
		const want = "OpenStack: 1 of 2 servers run, and these do not: slurmv-7.0-vm1 (BUILD): the test waits no longer"
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
	})
}
