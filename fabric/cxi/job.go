package cxi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

// defaultClasses are the traffic classes of a job that names none: those that HPE
// recommends for all users.
var defaultClasses = []fabric.Class{fabric.BestEffort, fabric.LowLatency}

// A Job is what a job's services are made from.
type Job struct {
	ID      journal.ID
	UID     uint32         // of the owner, as whom tasks and QEMU run
	VNIs    []fabric.Tag   // 1 to 4
	Classes []fabric.Class // empty for defaultClasses
	Cores   int            // of the job on this node
}

// JobOf returns the job of a reservation that has cores cores on this node.
func JobOf(r fabric.Reservation, cores int) Job {
	return Job{ID: r.Job, UID: r.UID, VNIs: r.Tags(fabric.VNI), Classes: r.Classes, Cores: cores}
}

// Owns reports whether s is the job's: its only member is the job's owner, and its VNIs
// are the job's and no others. A service of the system is nobody's.
func (j Job) Owns(s Service) bool {
	return len(j.VNIs) > 0 && !s.kept() && slices.Equal(s.Members, []Member{{UID, j.UID}}) && sameVNIs(s.VNIs, j.VNIs)
}

// newService returns the service for the job on a card that has room for these amounts.
func newService(j Job, room Amounts) (Service, error) {
	if err := j.check(); err != nil {
		return Service{}, err
	}
	limits := limitsFor(j.Cores, room)
	return Service{
		Enabled: true,
		Members: []Member{{UID, j.UID}},
		VNIs:    slices.Clone(j.VNIs),
		Classes: j.classes(),
		Limits:  &limits,
	}, nil
}

func (j Job) classes() []fabric.Class {
	if len(j.Classes) == 0 {
		return slices.Clone(defaultClasses)
	}
	return slices.Clone(j.Classes)
}

// check refuses what would give the job the VNIs of others, or all VNIs.
func (j Job) check() error {
	if n := len(j.VNIs); n < 1 || n > config.MaxVNIs {
		return fmt.Errorf("job %s has %d VNIs: a CXI service has 1 to %d", j.ID, n, config.MaxVNIs)
	}
	for i, vni := range j.VNIs {
		if vni == 0 || vni == 1 || vni == 10 {
			return fmt.Errorf("job %s has VNI %d, which no job may have: 0 means no VNI, 1 and 10 belong to the default service", j.ID, vni)
		}
		if slices.Contains(j.VNIs[:i], vni) {
			return fmt.Errorf("job %s has VNI %d twice", j.ID, vni)
		}
	}
	for _, class := range j.Classes {
		if !slices.Contains(fabric.Classes, class) {
			return fmt.Errorf("job %s has the traffic class %q: there are %q", j.ID, class, fabric.Classes)
		}
	}
	return nil
}

// tags is the VNIs as texts have them: "VNI 1027", "VNIs 1026 and 1027".
func tags(vnis []fabric.Tag) string {
	if len(vnis) == 1 {
		return fmt.Sprintf("VNI %d", vnis[0])
	}
	var texts []string
	for _, vni := range vnis {
		texts = append(texts, fmt.Sprint(vni))
	}
	return "VNIs " + enumerate(texts)
}

// enumerate joins words as a sentence does: "a, b and c".
func enumerate(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
