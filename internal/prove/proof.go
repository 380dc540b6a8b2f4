package prove

import (
	"encoding/json"
	"io"
	"reflect"

	"github.com/slurm-v/slurm-v/internal/workload"
)

// A Proof is all that was found out, in the form that a site can send.
type Proof struct {
	Passed   bool         `json:"passed"` // no step has failed
	Date     string       `json:"date"`
	SlurmV   string       `json:"slurm_v"` // versions
	Slurm    string       `json:"slurm"`
	Setting  Setting      `json:"setting"`
	Steps    []Step       `json:"steps"`
	Stages   []Stage      `json:"stages,omitempty"` // of a cold start
	Costs    []Comparison `json:"costs,omitempty"`
	Nodes    []Node       `json:"nodes,omitempty"`
	Software []string     `json:"software,omitempty"` // of the first node
}

// A Setting is what was asked for, and how the site runs VMs.
type Setting struct {
	Nodes     int    `json:"nodes"`
	VMs       int    `json:"vms_per_node"`
	VCPUs     int    `json:"vcpus_per_vm"`
	MemoryMiB int64  `json:"memory_mib_per_vm"`
	HugePages string `json:"hugepages,omitempty"`
	SRIOV     string `json:"sriov,omitempty"`
	IVShmem   int    `json:"ivshmem"`
	Rounds    int    `json:"rounds"`
	Quick     bool   `json:"quick"`
	Accel     string `json:"accel,omitempty"` // kvm, or tcg, which emulates; "" if no VM has started
	Pinned    bool   `json:"pinned"`          // vCPUs have CPUs of their own
}

// Emulated reports whether the VMs ran without KVM.
func (s Setting) Emulated() bool { return s.Accel == "tcg" }

// A Result says how a step has ended.
type Result string

// The values of Result.
const (
	Passed  Result = "passed"
	Failed  Result = "failed"
	Skipped Result = "skipped"
)

// A Step is one thing that is proven.
type Step struct {
	Name     string   `json:"name"`
	Proves   string   `json:"proves"` // a sentence
	Result   Result   `json:"result"`
	Reason   string   `json:"reason,omitempty"` // unless it has passed
	Seconds  float64  `json:"seconds"`
	Evidence []string `json:"evidence,omitempty"`
}

// A Stage says how long a stage of a cold start took, over all VMs, in seconds.
type Stage struct {
	Name   string  `json:"name"`
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
	What   string  `json:"what"`
}

// A Node is a machine, and what slurmv check says of it.
type Node struct {
	workload.Machine
	Checks []Check `json:"checks"`
}

// A Check is a result of slurmv check without what was seen, which names the site's things.
type Check struct {
	Name   string `json:"name"`
	Status string `json:"status"`
}

// Hide returns the proof without names, addresses and paths.
func (p Proof) Hide(n Names) Proof { return hidden(reflect.ValueOf(p), n).Interface().(Proof) }

// hidden copies a value with all its texts changed, so that no field can be forgotten.
func hidden(v reflect.Value, n Names) reflect.Value {
	changed := reflect.New(v.Type()).Elem()
	changed.Set(v)
	switch v.Kind() {
	case reflect.String:
		changed.SetString(n.Hide(v.String()))
	case reflect.Struct:
		for i := range v.NumField() {
			changed.Field(i).Set(hidden(v.Field(i), n))
		}
	case reflect.Slice:
		if v.IsNil() {
			return changed
		}
		changed.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			changed.Index(i).Set(hidden(v.Index(i), n))
		}
	}
	return changed
}

// WriteJSON writes the proof for programs.
func (p Proof) WriteJSON(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(p)
}
