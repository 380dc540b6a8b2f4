package vmlaunch

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/vmstep"
)

// The stages that the VMs of a node share. Those of a single VM are where it
// enters them.
const (
	stageQueue   = "queue"   // until the node begins, which is Slurm's
	stagePlan    = "plan"    // check the request, decide, open the journal
	stageImage   = "image"   // find the image, and have it on the node
	stageVF      = "vf"      // lease and set the virtual functions
	stageTaps    = "taps"    // make the job's bridge and taps
	stageLibvirt = "libvirt" // open libvirt's driver, which may have to find out about QEMU
	stageIVShmem = "ivshmem" // allocate the shared memory
	stageNetwork = "network" // until the VMs of all nodes know each other
)

// stagesFile is where a node's record lies in the job's directory.
const stagesFile = "stages.json"

// longestQueue is beyond what a step can have waited: more is a false clock, or a
// user's invention.
const longestQueue = 24 * time.Hour

// A stopwatch notes the stages of a launch. All of a node's run from one instant
// on the kernel's monotonic clock, so that they can be set side by side.
type stopwatch struct {
	began time.Time

	mu     sync.Mutex
	stages []nodeagent.Stage
}

// startStopwatch starts it for a job that was requested at that time; zero is
// unknown. The request was made on another host, by its clock.
func startStopwatch(requested time.Time) *stopwatch {
	w := &stopwatch{began: time.Now()}
	if queued := w.began.Round(0).Sub(requested); queued > 0 && queued < longestQueue {
		w.note(stageQueue, -queued, 0)
	}
	return w
}

// now is the time since the launch began.
func (w *stopwatch) now() time.Duration { return time.Since(w.began) }

func (w *stopwatch) note(stage string, start, end time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stages = append(w.stages, nodeagent.Stage{Name: stage, Start: start, End: end})
}

// during notes the time that do takes.
func (w *stopwatch) during(stage string, do func() error) error {
	start := w.now()
	defer func() { w.note(stage, start, w.now()) }()
	return do()
}

// noted returns the stages so far, as they began.
func (w *stopwatch) noted() []nodeagent.Stage {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(w.stages), func(a, b nodeagent.Stage) int { return int(a.Start - b.Start) })
}

// enter records that the VM goes into a stage of its launch, and tells.
func (m *machine) enter(stage string) {
	m.pass(stage)
	m.tell(stage)
}

// pass is for stages that are as good as over when somebody reads of them.
func (m *machine) pass(stage string) {
	now := m.node.clock.now()
	m.mu.Lock()
	if m.state != "" {
		m.stages = append(m.stages, nodeagent.Stage{Name: m.state, Start: m.since, End: now})
	}
	m.state, m.since = stage, now
	m.mu.Unlock()
	m.node.log.Info("stage", "vm", m.plan.Name, "stage", stage)
}

// tell shows the job's user what his VM waits for.
func (m *machine) tell(stage string) {
	m.node.progress(vmstep.Progress{VM: m.plan.Number, Stage: stage, Millis: m.node.clock.now().Milliseconds()})
}

// recordStages leaves for people when the stages of the launch began and ended.
func (n *Node) recordStages() error {
	text, err := json.MarshalIndent(n.Describe(), "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(n.plan.State, stagesFile), text, 0o600)
}
