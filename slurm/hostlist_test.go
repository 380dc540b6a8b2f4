package slurm

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestExpand(t *testing.T) {
	tests := map[string]struct {
		list string
		want []string
		fail bool
	}{
		"none":                       {"", nil, false},
		"one node":                   {"n1", []string{"n1"}, false},
		"a range":                    {"n[1-3]", []string{"n1", "n2", "n3"}, false},
		"zeros stay":                 {"n[08-11]", []string{"n08", "n09", "n10", "n11"}, false},
		"ranges and single numbers":  {"n[1-2,7],m2", []string{"n1", "n2", "n7", "m2"}, false},
		"a suffix":                   {"n[1-2]-ib", []string{"n1-ib", "n2-ib"}, false},
		"two dimensions":             {"r[1-2]n[3-4]", []string{"r1n3", "r1n4", "r2n3", "r2n4"}, false},
		"brackets that do not end":   {"n[1-2", nil, true},
		"a range that goes down":     {"n[4-1]", nil, true},
		"no number":                  {"n[a-b]", nil, true},
		"more nodes than Slurm has":  {"n[0-4294967295]", nil, true},
		"more by multiplying":        {"n[1-1000][1-1000]", nil, true},
		"an end without a beginning": {"n]1[2]", nil, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Expand(tt.list)
			if (err != nil) != tt.fail {
				t.Fatalf("error = %v, want one: %v", err, tt.fail)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("nodes differ (-want +got):\n%s", diff)
			}
		})
	}
}

// Slurm itself has the last word.
func TestExpandIsLikeSlurm(t *testing.T) {
	if _, err := exec.LookPath("scontrol"); err != nil {
		t.Skip("no scontrol: install Slurm's client programs")
	}
	conf := filepath.Join(t.TempDir(), "slurm.conf")
	if err := os.WriteFile(conf, []byte("ClusterName=c\nSlurmctldHost=h\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SLURM_CONF", conf)
	for _, list := range []string{"n1", "n[1-3]", "n[08-11]", "n[1-2,7],m2", "r[1-2]n[3-4]", "a,b,c[001-003,9]", "a1,a3,x[0-0]"} {
		out, err := exec.Command("scontrol", "show", "hostnames", list).Output()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Expand(list)
		if want := strings.Fields(string(out)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; scontrol says %v", list, got, err, want)
		}
	}
}

func FuzzExpand(f *testing.F) {
	for _, list := range []string{"n[1-4,7],m2", "r[1-2]n[01-16]", "n[", "]", ",,"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		hosts, err := Expand(list)
		if err == nil && (len(hosts) > maxHosts || slices.ContainsFunc(hosts, func(h string) bool { return h == "" || strings.ContainsAny(h, "[") })) {
			t.Errorf("%q gives %d nodes: %.100q", list, len(hosts), hosts)
		}
	})
}
