package vmlaunch

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/vmstep"
)

func TestQueueIsTheTimeSinceTheRequest(t *testing.T) {
	tests := map[string]struct {
		ago  time.Duration
		want bool
	}{
		"a moment ago":       {2 * time.Second, true},
		"by a clock ahead":   {-time.Minute, false},
		"an invented number": {1000 * time.Hour, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			stages := startStopwatch(time.Now().Round(0).Add(-tt.ago)).noted()
			if got := len(stages) == 1 && stages[0].Start <= -tt.ago && stages[0].End == 0; got != tt.want {
				t.Errorf("stages are %v", stages)
			}
		})
	}
	if stages := startStopwatch(time.Time{}).noted(); stages != nil {
		t.Errorf("a request that is not known was queued: %v", stages)
	}
}

func TestSharedStagesAreOrderedByTheirBeginning(t *testing.T) {
	w := startStopwatch(time.Time{})
	failure := errors.New("no")
	err := w.during("outer", func() error {
		return w.during("inner", func() error { return failure })
	})
	if !errors.Is(err, failure) {
		t.Errorf("error is %v", err)
	}
	stages := w.noted() // inner has ended first
	if len(stages) != 2 || stages[0].Name != "outer" || stages[0].Start > stages[1].Start || stages[0].End < stages[1].End {
		t.Errorf("stages are %v", stages)
	}
}

func TestRecordOfALaunch(t *testing.T) {
	plan := Plan{State: t.TempDir(), Job: Job{Node: "n1"}, VMs: []VMPlan{{Name: "vm0"}, {Name: "vm1", Index: 1, Number: 1}}}
	var told []string
	n := newNode(plan, nil, startStopwatch(time.Time{}), func(p vmstep.Progress) { told = append(told, p.Stage) })
	n.clock.note(stageImage, 1, 2)
	for _, stage := range []string{"boot", "agent", "ready"} {
		n.machines[1].enter(stage)
	}
	if err := n.recordStages(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(plan.State, stagesFile))
	var got nodeagent.NodeVMs
	if err = errors.Join(err, json.Unmarshal(text, &got)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]nodeagent.Stage{{Name: "image", Start: 1, End: 2}}, got.Stages); diff != "" {
		t.Errorf("shared stages differ (-want +got):\n%s", diff)
	}
	if !got.Began.Equal(n.clock.began) {
		t.Errorf("the launch began at %v, recorded is %v", n.clock.began, got.Began)
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
