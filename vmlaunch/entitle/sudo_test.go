package entitle

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/slurm/cgroup"
)

func TestThisNode(t *testing.T) {
	nodes := []string{"n1", "n2"}
	if got, err := thisNode(cgroup.Step{Node: "n2"}, nodes); got != "n2" || err != nil {
		t.Errorf("%q, %v; want the node of the cgroup", got, err)
	}
	if got, err := thisNode(cgroup.Step{Node: "n3"}, nodes); err == nil {
		t.Errorf("%q is a node of the job, but is not", got)
	}
}

func TestSudoUID(t *testing.T) {
	for text, good := range map[string]bool{"6002": true, "0": true, "": false, "-1": false, "bob": false} {
		uid, err := sudoUID(func(string) string { return text })
		if (err == nil) != good {
			t.Errorf("SUDO_UID=%q: %d, %v", text, uid, err)
		}
	}
}

func TestReadSpec(t *testing.T) {
	want := jobspec.Spec{VMsPerNode: 2, Image: "/i", WorkDir: "/home/bob"}
	if got, err := ReadSpec(strings.NewReader(want.Encode() + "\n")); err != nil || !cmp.Equal(want, got) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ReadSpec(strings.NewReader(strings.Repeat(" ", maxSpec) + want.Encode())); err == nil {
		t.Errorf("%+v from beyond the bound", got)
	}
}
