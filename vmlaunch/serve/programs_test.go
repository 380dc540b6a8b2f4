package serve

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
	"github.com/slurm-v/slurm-v/vmlaunch/plan/plantest"
)

// Whatever a relay, which is the user's, asks for: a program is the owner's.
func TestProgramsAreTheOwners(t *testing.T) {
	p := plantest.Plan(t)
	p.Owner.Groups = []owner.Group{{Name: "a", GID: 6001}, {Name: "b", GID: 7001}}
	s := serverOf(p)
	h := guest.Header{Command: &guest.Command{UID: 0, GID: 0, Groups: []uint32{0, 27}, Env: []string{"A=1"}}}
	s.environ = func(m *machine.Machine, env []string) []string { return append(env, "VM="+m.Plan.Name) }
	if err := s.inVM(s.set.Machines[1])(&h); err != nil {
		t.Fatal(err)
	}
	want := guest.Command{UID: 6001, GID: 6001, Groups: []uint32{6001, 7001}, Env: []string{"A=1", "VM=" + s.set.Machines[1].Plan.Name}}
	if diff := cmp.Diff(want, *h.Command); diff != "" {
		t.Errorf("the command differs (-want +got):\n%s", diff)
	}
}

// A VM runs as many programs as the site allows, and none when the job ends.
func TestProgramsOfAVMAreCounted(t *testing.T) {
	p := plantest.Plan(t)
	p.Programs = 2
	s := serverOf(p)
	m, other := s.set.Machines[0], s.set.Machines[1]
	for range p.Programs {
		if err := s.programs.begin(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.programs.begin(m); err == nil || !strings.Contains(err.Error(), "limits.programs_per_vm") {
		t.Errorf("one more: %v", err)
	}
	if err := s.programs.begin(other); err != nil {
		t.Errorf("in another VM: %v", err)
	}
	s.programs.end(m)
	if err := s.programs.begin(m); err != nil {
		t.Errorf("when one has ended: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	s.programs.finish(over)
	s.programs.end(m)
	if err := s.programs.begin(m); err == nil || !strings.Contains(err.Error(), "are ending") {
		t.Errorf("when the job ends: %v", err)
	}
}
