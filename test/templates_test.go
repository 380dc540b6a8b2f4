//go:build cluster

package test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
)

// Booting an emulated VM takes ten seconds of a core, restoring it less than one. So
// scripts/test has templates made first. Tests whose subject is the boot say cold.
var templates = flag.Bool("templates", false, "make templates first, from which jobs of the tests restore their VMs")

// Most tests' VMs have one of these shapes: a template fits VMs of one shape. bob has VMs of the first only.
const (
	oneCPU  = "--vcpu-per-vm=1 --memory-per-vm=384M"
	twoCPUs = "--vcpu-per-vm=2 --memory-per-vm=384M"
)

// cold is for jobs whose VMs are to boot.
const cold = " --vm-start=cold"

// makeTemplates makes the templates of both users on both nodes, where they are missing.
func makeTemplates() error {
	var all sync.WaitGroup
	var failed [3]error
	all.Go(func() { failed[0] = alice.makeTemplate(oneCPU) })
	all.Go(func() { failed[1] = alice.makeTemplate(twoCPUs) })
	all.Go(func() { failed[2] = bob.makeTemplate(oneCPU) })
	all.Wait()
	return errors.Join(failed[:]...)
}

func (u user) makeTemplate(shape string) error {
	script := "mkdir -p ~/templates && cd ~/templates && salloc --quiet --nodes=2 --vm-per-node=1 --time=90 " + shape + " slurmv image warm"
	out, err := u.command(context.Background(), script).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %s: %w\n%s\n%s", u, script, err, out, u.keep("templates/"+string(u), "~/templates"))
	}
	return nil
}
