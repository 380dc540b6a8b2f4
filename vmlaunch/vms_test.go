package vmlaunch

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmlaunch/plan/plantest"
	"github.com/slurm-v/slurm-v/vmstep"
)

// The guest binds the working directory at its second path: it has no device and no server.
func TestGuestSetupHasTheAlias(t *testing.T) {
	p := plantest.Plan(t)
	p.Job.Spec.WorkDirAlias = "/alias"
	mounts := guestSetup(p, p.VMs[0], netip.Prefix{}, 1500).Mounts
	if last := mounts[len(mounts)-1]; last != (guest.Mount{Of: p.Job.Spec.WorkDir, Path: "/alias"}) || len(mounts) != len(p.Job.Spec.Mounts)+1 {
		t.Errorf("the guest mounts %+v", mounts)
	}
	if err := (&directories{}).mount(t.Context(), nil, mounts); err != nil {
		t.Error(err)
	}
}

func TestRecordOfALaunch(t *testing.T) {
	p := plan.Plan{State: t.TempDir(), Job: plan.Job{Node: "n1"}, VMs: []plan.VM{{Name: "vm0"}, {Name: "vm1", Index: 1, Number: 1}}}
	var told []string
	v := newVMs(store{}, p, Slurmctld{}, nil, machine.StartStopwatch(time.Time{}), func(p vmstep.Progress) { told = append(told, p.Stage) })
	v.Clock.Note(nodeagent.StageImage, 1, 2)
	for _, stage := range []string{"boot", "agent", "ready"} {
		v.Machines[1].Enter(stage)
	}
	if err := v.recordStages(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(p.State, stagesFile))
	var got nodeagent.NodeVMs
	if err = errors.Join(err, json.Unmarshal(text, &got)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]nodeagent.Stage{{Name: "image", Start: 1, End: 2}}, got.Stages); diff != "" {
		t.Errorf("shared stages differ (-want +got):\n%s", diff)
	}
	if !got.Began.Equal(v.Clock.Began) {
		t.Errorf("the launch began at %v, recorded is %v", v.Clock.Began, got.Began)
	}
	stages := got.VMs[1].Stages
	if len(stages) != 2 || stages[0].Name != "boot" || stages[1].Name != "agent" || stages[0].End != stages[1].Start {
		t.Errorf("stages of vm1 are %v", stages)
	}
	if got.VMs[0].Stages != nil {
		t.Errorf("stages of vm0 are %v", got.VMs[0].Stages)
	}
	if diff := cmp.Diff([]string{"boot", "agent", "ready"}, told); diff != "" {
		t.Errorf("progress differs (-want +got):\n%s", diff)
	}
}
