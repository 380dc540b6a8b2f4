package machine

import (
	"slices"
	"sync"
	"time"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// longestQueue is longer than any step waits. A longer time comes from a wrong clock, or
// the user made it up.
const longestQueue = 24 * time.Hour

// A Stopwatch notes the stages of a launch. All stages of a node are measured from one
// instant on the kernel's monotonic clock, so they can be compared.
type Stopwatch struct {
	Began time.Time

	mu     sync.Mutex
	stages []nodeagent.Stage
}

// StartStopwatch starts the stopwatch of a job. requested is when the user asked for the
// VMs, by the clock of another host; zero is unknown.
func StartStopwatch(requested time.Time) *Stopwatch {
	w := &Stopwatch{Began: time.Now()}
	if queued := w.Began.Round(0).Sub(requested); queued > 0 && queued < longestQueue {
		w.Note(nodeagent.StageQueue, -queued, 0)
	}
	return w
}

// Now is the time since the launch began.
func (w *Stopwatch) Now() time.Duration { return time.Since(w.Began) }

// Note adds a stage, from start to end on this clock.
func (w *Stopwatch) Note(stage string, start, end time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stages = append(w.stages, nodeagent.Stage{Name: stage, Start: start, End: end})
}

// During notes the time that do takes.
func (w *Stopwatch) During(stage string, do func() error) error {
	start := w.Now()
	defer func() { w.Note(stage, start, w.Now()) }()
	return do()
}

// Noted returns the stages so far, ordered by their beginnings.
func (w *Stopwatch) Noted() []nodeagent.Stage {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(w.stages), func(a, b nodeagent.Stage) int { return int(a.Start - b.Start) })
}
