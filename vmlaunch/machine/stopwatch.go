package machine

import (
	"slices"
	"sync"
	"time"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// longestQueue is beyond what a step can have waited: more is a false clock, or a
// user's invention.
const longestQueue = 24 * time.Hour

// A Stopwatch notes the stages of a launch. All of a node's run from one instant
// on the kernel's monotonic clock, so that they can be set side by side.
type Stopwatch struct {
	Began time.Time

	mu     sync.Mutex
	stages []nodeagent.Stage
}

// StartStopwatch starts it for a job that was requested at that time; zero is
// unknown. The request was made on another host, by its clock.
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

// Noted returns the stages so far, as they began.
func (w *Stopwatch) Noted() []nodeagent.Stage {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(w.stages), func(a, b nodeagent.Stage) int { return int(a.Start - b.Start) })
}
