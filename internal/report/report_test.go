package report

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

const s = time.Second

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func stage(name string, start, end time.Duration) nodeagent.Stage {
	return nodeagent.Stage{Name: name, Start: start, End: end}
}

// launched returns a job on two nodes, of which the second began a second later.
func launched() []nodeagent.NodeVMs {
	return []nodeagent.NodeVMs{
		{
			Node: "n1", Began: noon,
			Stages: []nodeagent.Stage{stage("queue", -2*s, 0), stage("image", 0, 4*s), stage("vf", s, 2*s), stage("network", 9*s, 10*s)},
			VMs: []nodeagent.VM{
				{Name: "vm0", Stages: []nodeagent.Stage{stage("boot", 4*s, 8*s)}},
				{Name: "vm1", Stages: []nodeagent.Stage{stage("boot", 4*s, 9*s)}},
			},
		},
		{
			Node: "n2", Began: noon.Add(s),
			Stages: []nodeagent.Stage{stage("queue", -3*s, 0), stage("image", 0, s), stage("network", 7*s, 9*s)},
			VMs:    []nodeagent.VM{{Name: "vm2", Stages: []nodeagent.Stage{stage("boot", s, 7*s)}}},
		},
	}
}

func TestRows(t *testing.T) {
	failed := launched()
	failed[1].VMs[0].State = "failed"
	tests := map[string]struct {
		nodes []nodeagent.NodeVMs
		want  []Row
	}{
		"shared stages count for each VM": {launched(), []Row{
			{"queue", 2 * s, 2 * s, 3 * s, meanings["queue"]},
			{"image", s, 4 * s, 4 * s, meanings["image"]},
			{"boot", 4 * s, 5 * s, 6 * s, meanings["boot"]},
			{"vf", s, s, s, meanings["vf"]},
			{"network", s, s, 2 * s, meanings["network"]},
			{"ready", 12 * s, 12 * s, 12 * s, meanings["ready"]},
		}},
		"a VM that failed was never ready": {failed[1:], []Row{
			{"queue", 3 * s, 3 * s, 3 * s, meanings["queue"]},
			{"image", s, s, s, meanings["image"]},
			{"boot", 6 * s, 6 * s, 6 * s, meanings["boot"]},
			{"network", 2 * s, 2 * s, 2 * s, meanings["network"]},
		}},
		"nothing is known": {[]nodeagent.NodeVMs{{Node: "n1", VMs: []nodeagent.VM{{Name: "vm0"}}}}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Rows(tt.nodes)); diff != "" {
				t.Errorf("rows differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEveryStageHasAMeaning(t *testing.T) {
	want := append(slices.Clone(nodeagent.Stages), ready)
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(meanings))); diff != "" {
		t.Errorf("stages with a meaning (-want +got):\n%s", diff)
	}
}

func TestSummaryGoesByTheClocksOfTheNodes(t *testing.T) {
	nodes := launched()
	if got, want := Summarize(nodes), (Summary{VMs: 3, Nodes: 2, Ready: 12 * s}); got != want {
		t.Errorf("summary is %v, want %v", got, want)
	}
	nodes[1].Began = noon.Add(4 * s)
	if got := Summarize(nodes).Ready; got != 15*s {
		t.Errorf("ready after %v, with a node that began 4 s later", got)
	}
}

func TestStagesThatOverlapGetLanesOfTheirOwn(t *testing.T) {
	var got []string
	for _, l := range lanes(launched()) {
		var names []string
		for _, s := range l.stages {
			names = append(names, s.Name)
		}
		got = append(got, l.label+": "+strings.Join(names, " "))
	}
	want := []string{"n1: queue image network", ": vf", "vm0: boot", "vm1: boot", "n2: queue image network", "vm2: boot"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lanes differ (-want +got):\n%s", diff)
	}
}
