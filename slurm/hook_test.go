package slurm

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/internal/program"
)

func TestHookOf(t *testing.T) {
	plain := map[string]string{
		"SLURM_CLUSTER_NAME": "c", "SLURM_JOB_ID": "17", "SLURM_JOB_UID": "1000", "SLURM_JOB_RESTART_COUNT": "2",
		"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_PARTITION": "gpu", "SPANK_SLURMV_FABRIC": "vni:1",
	}
	want := Hook{Cluster: "c", Record: RunID{17, 2}, Name: "17", Job: RunID{17, 2}, UID: 1000, Partition: "gpu", Nodes: []string{"n1", "n2"}}
	tests := map[string]struct {
		more   map[string]string
		change func(*Hook)
		fail   bool
	}{
		"a job": {nil, func(*Hook) {}, false},
		"the last task of an array, whose number is the array's": {
			map[string]string{"SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "3"},
			func(h *Hook) { h.Name = "17_3" }, false,
		},
		"the leader of a heterogeneous job has all nodes": {
			map[string]string{"SLURM_HET_JOB_ID": "17", "SLURM_HET_JOB_OFFSET": "0", "SLURM_HET_JOB_NODELIST": "n[1-3]"},
			func(h *Hook) { h.Nodes = []string{"n1", "n2", "n3"} }, false,
		},
		"another component": {
			map[string]string{"SLURM_HET_JOB_ID": "16", "SLURM_HET_JOB_OFFSET": "1"},
			func(h *Hook) { h.Job = RunID{16, 2} }, false,
		},
		"no job":            {map[string]string{"SLURM_JOB_ID": ""}, nil, true},
		"no restart count":  {map[string]string{"SLURM_JOB_RESTART_COUNT": ""}, nil, true},
		"no cluster's name": {map[string]string{"SLURM_CLUSTER_NAME": ""}, nil, true},
		"no list of nodes":  {map[string]string{"SLURM_JOB_NODELIST": "n[1"}, nil, true},
		"no number":         {map[string]string{"SLURM_HET_JOB_ID": "x"}, nil, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			vars := maps.Clone(plain)
			maps.Copy(vars, tt.more)
			got, err := HookOf(func(name string) string { return vars[name] })
			if tt.fail {
				if err == nil {
					t.Fatalf("no error: %+v", got)
				}
				return
			}
			want := want
			tt.change(&want)
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%v; hook differs (-want +got):\n%s", err, diff)
			}
			if got.Leads() != (got.Job == got.Record) {
				t.Error("a component leads")
			}
		})
	}
}

func TestSaveLocation(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"plain":                      {"ClusterName=c\nStateSaveLocation=/var/spool/ctl # here\n", "/var/spool/ctl"},
		"other case and blanks":      {"  statesavelocation = /s\n", "/s"},
		"the last one wins":          {"StateSaveLocation=/a\nStateSaveLocation=/b\n", "/b"},
		"a comment":                  {"#StateSaveLocation=/a\n", ""},
		"not there":                  {"ClusterName=c\n", ""},
		"may be in another file":     {"StateSaveLocation=/a\nInclude /etc/slurm/more.conf\n", ""},
		"more parameters on a line":  {"StateSaveLocation=/a SlurmUser=slurm\n", ""},
		"the line goes on":           {"StateSaveLocation=/a\\\n", ""},
		"a pattern":                  {"StateSaveLocation=/a/%h\n", ""},
		"relative, which Slurm lets": {"StateSaveLocation=a\n", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := saveLocation(tt.text); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestStateSaveLocationAsksSlurm(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("scontrol", "#!/bin/sh\necho 'StateSaveLocation       = /asked'\n")
	write("slurm.conf", "StateSaveLocation=/read\n")
	client := Client{Bin: dir, Env: []string{"SLURM_CONF=" + filepath.Join(dir, "slurm.conf")}}
	if got, err := client.StateSaveLocation(context.Background()); got != "/read" || err != nil {
		t.Errorf("%q, %v instead of what the file says", got, err)
	}
	write("slurm.conf", "Include more.conf\n")
	if got, err := client.StateSaveLocation(context.Background()); got != "/asked" || err != nil {
		t.Errorf("%q, %v instead of what scontrol says", got, err)
	}
}

// A process of root asks Slurm in the way of the one that started it, and has nothing else of it.
func TestRootEnviron(t *testing.T) {
	t.Setenv("SLURMV_SPEC", "x")
	for conf, want := range map[string][]string{"": {"PATH=" + program.Path}, "/x": {"PATH=" + program.Path, "SLURM_CONF=/x"}} {
		t.Setenv("SLURM_CONF", conf)
		if got := RootEnviron(); !slices.Equal(got, want) {
			t.Errorf("with SLURM_CONF=%s the environment is %q, want %q", conf, got, want)
		}
	}
}
