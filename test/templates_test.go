//go:build cluster

package test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// Booting an emulated VM takes ten seconds of a core, restoring it less than one. So
// scripts/test has templates made first. Tests whose subject is the boot say cold.
var templates = flag.Bool("templates", false, "make templates first, from which jobs of the tests restore their VMs")

// Most tests' VMs have one of these shapes: a template fits VMs of one shape. Both users have templates of the first, and
// alice one of the second as soon as a test wants it.
const (
	oneCPU  = "--vcpu-per-vm=1 --memory-per-vm=384M"
	twoCPUs = "--vcpu-per-vm=2 --memory-per-vm=384M"
)

// cold is for jobs whose VMs are to boot.
const cold = " --vm-start=cold"

// makeTemplates makes the templates of both users on both nodes, where they are missing.
func makeTemplates() error {
	var all sync.WaitGroup
	var failed [2]error
	all.Go(func() { failed[0] = alice.makeTemplate(oneCPU) })
	all.Go(func() { failed[1] = bob.makeTemplate(oneCPU) })
	all.Wait()
	return errors.Join(failed[:]...)
}

var twoCPUTemplate = sync.OnceValue(func() error { return alice.makeTemplate(twoCPUs) })

// awaitTemplate makes the template that a job with these options is restored from, if it is made on demand.
func (u user) awaitTemplate(t *testing.T, options string) {
	t.Helper()
	if !*templates || u != alice || !strings.Contains(options, twoCPUs) {
		return
	}
	if err := twoCPUTemplate(); err != nil {
		t.Fatal(err)
	}
}

func (u user) makeTemplate(shape string) error {
	script := "mkdir -p ~/templates && cd ~/templates && salloc --quiet --nodes=2 --vm-per-node=1 --time=90 " + shape + " slurmv image warm"
	out, err := u.command(context.Background(), script).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %s: %w\n%s\n%s", u, script, err, out, u.keep("templates/"+string(u), "~/templates"))
	}
	return nil
}
