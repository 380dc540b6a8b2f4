package vmstep

import "github.com/slurm-v/slurm-v/internal/nodeagent"

// The states of a VM step.
const (
	StateStarting  = "starting"
	StateReady     = "ready"     // every VM knows the map
	StateFailed    = "failed"    // the VMs did not come up; Reason says why
	StateEnded     = "ended"     // they were ready and are gone; Reason says why
	StateElsewhere = "elsewhere" // a keeper on another host has them
)

// An Event is one line from the keeper to a client. The first line is the state when the
// client connects. Then come all events since this start of the VMs, and then new ones as
// they happen. Exactly one of State, Progress and Text is set.
type Event struct {
	State  string `json:"state,omitempty"`
	Reason string `json:"reason,omitempty"`
	Millis int64  `json:"ms,omitempty"`  // with a state: since the start
	VMs    int    `json:"vms,omitempty"` // with StateStarting: of the job, if known

	Map []nodeagent.NodeVMs `json:"map,omitempty"` // with StateReady

	Node     string    `json:"node,omitempty"` // with Progress
	Progress *Progress `json:"progress,omitempty"`

	Text string `json:"text,omitempty"` // a line some other program printed
}

// Over reports whether the VMs have failed or ended.
func (e Event) Over() bool { return e.State == StateFailed || e.State == StateEnded }

// final reports whether a client that waits for the VMs need not wait longer.
func (e Event) final() bool {
	return e.State != "" && e.State != StateStarting
}

// A clientHello is the one line from a client to the keeper.
type clientHello struct {
	// Restart asks to start the VMs again if they have failed or ended.
	Restart bool `json:"restart,omitempty"`
}
