package controller

import (
	"errors"
	"testing"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/journal"
)

func fleetOf(t *testing.T) *fleet {
	b := newBench(t)
	b.Site.Cooling, b.Site.VLAN.Pool = 30, nil
	b.Site.VNI.Pool = config.Tags{{First: 1024, Last: 1024 + atOnce - 1}}
	return newFleet(b)
}

// Package ledger has such a test of the machine of states; here are the letters of nodes, slurmctld's
// records and the file between.
func TestManyJobsShareNoTagAndNoneIsRefused(t *testing.T) {
	f := fleetOf(t)
	if err := f.all(fleetJobs); err != nil {
		t.Error(err)
	}
	t.Logf("up to %d jobs at once, %d reboots", f.most, f.reboots())
}

// The test above notices what it looks for.
func TestASharedTagIsNoticed(t *testing.T) {
	for name, plant := range map[string]func(*fleet){
		"a node confirms what it has": func(f *fleet) { f.nodes[3].lies = true },
		"a tag is of a job unknown":   func(f *fleet) { f.nodes[3].lies, f.nodes[3].tags[1024+5] = true, journal.ID{Job: 5000} },
	} {
		t.Run(name, func(t *testing.T) {
			f := fleetOf(t)
			plant(f)
			var twice *shared
			if err := f.all(2 * atOnce); !errors.As(err, &twice) {
				t.Errorf("error = %v", err)
			}
		})
	}
}

// A node that says nothing keeps the tags of its jobs.
func TestATagThatIsNotConfirmedIsNoticed(t *testing.T) {
	f := fleetOf(t)
	if err := f.start(1); err != nil {
		t.Fatal(err)
	}
	f.endJob(1, true)
	f.nodes = nil
	if err := f.rest(); err == nil {
		t.Error("no error, and no node has confirmed")
	}
}
