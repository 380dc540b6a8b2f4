//go:build sriov && soak

package sriovnode

import (
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/config"
)

// TestPassthroughIntoATemplate does as TestPassthrough with a VM from a template, whose memory
// is pinned for the VF. Making the template takes some minutes.
func TestPassthroughIntoATemplate(t *testing.T) { passThrough(t, config.StartWarm, "VMs are restored") }

// The agent is killed at any moment of a launch, which takes half a minute.
func TestKilledWhileLaunching(t *testing.T) {
	install(t)
	for after := 100 * time.Millisecond; after < time.Minute; after += after / 5 {
		t.Run(after.Round(time.Millisecond).String(), func(t *testing.T) {
			l := newLab(t)
			l.keeps(t)
			a := l.launch(t, request())
			time.Sleep(after)
			if !a.kill() {
				t.Errorf("the agent had ended by itself:\n%s", a.said())
			}
			a.reclaim(t)
		})
	}
}
