package slurm

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseSteps(t *testing.T) {
	started := time.Unix(1700000000, 0)
	tests := map[string]struct {
		text    string
		want    []StepJob
		wantErr string
	}{
		"nothing":                      {"", nil, ""},
		"only steps that are no VMs":   {"7|7.batch|alice|1700000000|batch\n7|7.0|alice|1700000000|slurm-v2\n", nil, ""},
		"a VM step, padded":            {"    7|      7.0|  alice|  1700000000|slurm-v      \n", []StepJob{{Name: "7", ID: 7, User: "alice", Started: started}}, ""},
		"a VM step of an array's task": {"8|7_1.0|alice|1700000000|slurm-v\n", []StepJob{{Name: "7_1", ID: 8, User: "alice", Started: started}}, ""},
		"a step with a strange name":   {"7|7.0|alice|1700000000|a|b|slurm-v\n", nil, ""},
		"times that are not understood": {"7|7.0|alice|2026-11-20T14:29:03|slurm-v\n", nil,
			"squeue lists a step in words that are not understood: 7|7.0|alice|2026-11-20T14:29:03|slurm-v"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseSteps(tt.text, "slurm-v")
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("jobs differ (-want +got):\n%s", diff)
			}
			if (err != nil || tt.wantErr != "") && (err == nil || err.Error() != tt.wantErr) {
				t.Errorf("error = %v, want %s", err, tt.wantErr)
			}
		})
	}
}

// squeue lists steps in hidden partitions only with --all.
func TestStepJobsInHiddenPartitions(t *testing.T) {
	bin := t.TempDir()
	squeue := `#!/bin/sh
case " $* " in
*" --steps "*) case " $* " in *" --all "*) echo "7|7.0|alice|1700000000|slurm-v" ;; esac ;;
*) echo "7|0|1|RUNNING" ;;
esac
`
	if err := os.WriteFile(filepath.Join(bin, "squeue"), []byte(squeue), 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := Client{Bin: bin}.StepJobs(t.Context(), Which{Jobs: []string{"7"}}, "slurm-v")
	if err != nil || len(got) != 1 || got[0].Name != "7" {
		t.Errorf("%+v, %v; want job 7", got, err)
	}
}

func TestParseStepJobs(t *testing.T) {
	jobs := []StepJob{{Name: "9", ID: 9}, {Name: "7", ID: 7}}
	tests := map[string]struct {
		text string
		want []StepJob // nil if an error is expected
	}{
		"in the order of their numbers": {"9|0|2|RUNNING\n7|3|1|RUNNING\n",
			[]StepJob{{Name: "7", ID: 7, Restart: 3, Nodes: 1}, {Name: "9", ID: 9, Nodes: 2}}},
		"without those that end meanwhile": {"9|0|2|COMPLETING\n7|3|1|SUSPENDED\n", []StepJob{{Name: "7", ID: 7, Restart: 3, Nodes: 1}}},
		"beside other tasks of its array":  {"10|0|1|PENDING\n9|0|2|RUNNING\n8|0|1|RUNNING\n", []StepJob{{Name: "9", ID: 9, Nodes: 2}}},
		"a number that is none":            {"9|x|2|RUNNING\n", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseStepJobs(tt.text, jobs)
			if (err == nil) != (tt.want != nil) {
				t.Fatalf("error = %v", err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("jobs differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDescribedJob(t *testing.T) {
	tests := map[string]struct{ text, id, dir string }{
		"an ordinary one":           {"JobId=7 JobName=x UserId=a(1) WorkDir=/home/a StdErr=/home/a/x\n", "7", "/home/a"},
		"a directory with blanks":   {"JobId=7 ArrayJobId=6 WorkDir=/home/a/my data StdErr=/x\n", "7", "/home/a/my data"},
		"a directory at the end":    {"JobId=7 WorkDir=/home/a", "7", "/home/a"},
		"the first of an array":     {"JobId=7 WorkDir=/a Power=\nJobId=8 WorkDir=/b Power=\n", "7", "/a"},
		"a name that looks like it": {"JobId=7 JobName=JobId=9 WorkDir=/a Power=\n", "7", "/a"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if id, dir := describedJob(tt.text); id != tt.id || dir != tt.dir {
				t.Errorf("%q, %q; want %q, %q", id, dir, tt.id, tt.dir)
			}
		})
	}
}
