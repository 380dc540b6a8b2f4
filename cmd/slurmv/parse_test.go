package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseTarget(t *testing.T) {
	tests := map[string]struct {
		text string
		job  string // that slurmv runs in
		want string // "" for an error
	}{
		"a job is its first VM":          {text: "4217", want: "4217/vm0"},
		"a VM by its name":               {text: "4217/vm3", want: "4217/vm3"},
		"a VM by its number":             {text: "4217/3", want: "4217/vm3"},
		"a task of an array":             {text: "4217_2/1", want: "4217_2/vm1"},
		"a VM of this job":               {text: "/vm1", job: "9", want: "9/vm1"},
		"this job":                       {text: "", job: "9", want: "9/vm0"},
		"another job than this":          {text: "8", job: "9", want: "8/vm0"},
		"no job at all":                  {text: ""},
		"a VM of no job":                 {text: "/vm1"},
		"no number":                      {text: "all"},
		"an option":                      {text: "-1"},
		"words of a shell":               {text: "1;reboot"},
		"a VM that is none":              {text: "1/eth0"},
		"a step":                         {text: "1.0"},
		"more than one slash":            {text: "1/2/3"},
		"a number that is too large":     {text: "99999999999"},
		"a line end behind what is good": {text: "1/vm0\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseTarget(tt.text, func(string) string { return tt.job })
			if tt.want == "" {
				if exitCode(err) != 2 {
					t.Fatalf("%v, %v; want a usage error", got, err)
				}
				return
			}
			if err != nil || got.String() != tt.want {
				t.Errorf("%v, %v; want %s", got, err, tt.want)
			}
		})
	}
}

func TestParseSteps(t *testing.T) {
	started := time.Unix(1700000000, 0)
	tests := map[string]struct {
		text    string
		want    []vmJob
		wantErr string
	}{
		"nothing":                      {"", nil, ""},
		"only steps that are no VMs":   {"7|7.batch|alice|1700000000|batch\n7|7.0|alice|1700000000|slurm-v2\n", nil, ""},
		"a VM step, padded":            {"    7|      7.0|  alice|  1700000000|slurm-v      \n", []vmJob{{Name: "7", ID: 7, User: "alice", Started: started}}, ""},
		"a VM step of an array's task": {"8|7_1.0|alice|1700000000|slurm-v\n", []vmJob{{Name: "7_1", ID: 8, User: "alice", Started: started}}, ""},
		"a step with a strange name":   {"7|7.0|alice|1700000000|a|b|slurm-v\n", nil, ""},
		"times that are not understood": {"7|7.0|alice|2026-11-20T14:29:03|slurm-v\n", nil,
			"squeue lists a step in words that are not understood: 7|7.0|alice|2026-11-20T14:29:03|slurm-v"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseSteps(tt.text)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("jobs differ (-want +got):\n%s", diff)
			}
			if (err != nil || tt.wantErr != "") && (err == nil || err.Error() != tt.wantErr) {
				t.Errorf("error = %v, want %s", err, tt.wantErr)
			}
		})
	}
}

func TestParseJobs(t *testing.T) {
	jobs := []vmJob{{Name: "9", ID: 9}, {Name: "7", ID: 7}}
	tests := map[string]struct {
		text string
		want []vmJob // nil for an error
	}{
		"in the order of their numbers": {"9|0|2|RUNNING\n7|3|1|RUNNING\n",
			[]vmJob{{Name: "7", ID: 7, Restart: 3, Nodes: 1}, {Name: "9", ID: 9, Nodes: 2}}},
		"without those that end meanwhile": {"9|0|2|COMPLETING\n7|3|1|SUSPENDED\n", []vmJob{{Name: "7", ID: 7, Restart: 3, Nodes: 1}}},
		"a job that was not asked for":     {"8|0|2|RUNNING\n", nil},
		"a number that is none":            {"9|x|2|RUNNING\n", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseJobs(tt.text, jobs)
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

func TestRemarkFilter(t *testing.T) {
	const said = "srun: error: n1: task 0: Exited with exit code 3\n"
	tests := map[string]struct {
		writes []string
		early  string // what has come before the end
		want   string
	}{
		"srun's remark is left out":                 {[]string{said}, "", ""},
		"also in pieces":                            {[]string{"sr", "un: error: n1: task 0: Exited with", " exit code 3\n"}, "", ""},
		"the program's words pass":                  {[]string{"one\ntwo\n"}, "one\ntwo\n", "one\ntwo\n"},
		"around a remark, too":                      {[]string{"one\n" + said + "two\n"}, "one\ntwo\n", "one\ntwo\n"},
		"a prompt passes at once":                   {[]string{"name: "}, "name: ", "name: "},
		"other errors of srun pass":                 {[]string{"srun: error: n1: task 0: Killed\n"}, "srun: error: n1: task 0: Killed\n", "srun: error: n1: task 0: Killed\n"},
		"what only began like one comes at the end": {[]string{"srun: err"}, "", "srun: err"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			f := &remarkFilter{out: &out}
			for _, w := range tt.writes {
				if n, err := f.Write([]byte(w)); n != len(w) || err != nil {
					t.Fatal(n, err)
				}
			}
			if out.String() != tt.early {
				t.Errorf("before the end %q, want %q", out.String(), tt.early)
			}
			if err := f.Close(); err != nil || out.String() != tt.want {
				t.Errorf("%q, %v; want %q", out.String(), err, tt.want)
			}
		})
	}
}

func TestKeyReaderEndsWithItsKey(t *testing.T) {
	left := false
	r := &keyReader{in: strings.NewReader("ls\r\x1dnever"), leave: func() { left = true }}
	text, err := io.ReadAll(r)
	if err != nil || string(text) != "ls\r" || !left {
		t.Errorf("%q, %v, left %v", text, err, left)
	}
}

func TestAge(t *testing.T) {
	tests := map[int64]string{0: "0s", 59: "59s", 61: "1m1s", 3600: "1h0m", 86399: "23h59m", 90000: "1d1h"}
	for seconds, want := range tests {
		if got := age(seconds); got != want {
			t.Errorf("%d: %s, want %s", seconds, got, want)
		}
	}
}

func TestExitCode(t *testing.T) {
	tests := map[string]struct {
		err  error
		want int
	}{
		"all well":               {nil, 0},
		"an error":               {errors.New("x"), 1},
		"a program's own":        {exitError{7}, 7},
		"a usage error":          {usagef("x"), 2},
		"an error beside others": {errors.Join(errors.New("x"), usagef("y")), 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := exitCode(tt.err); got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
		})
	}
}

func TestShellQuote(t *testing.T) {
	if got, want := shellQuote(`/a b/it's`), `'/a b/it'\''s'`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestStepEnvironmentIsFreeOfTheJobAround(t *testing.T) {
	got := stepEnv([]string{"PATH=/bin", "SLURM_JOB_ID=1", "SLURM_JOBID=1", "SLURM_RESTART_COUNT=4", "SLURM_NTASKS=8", "SLURM_CONF=/c",
		"SLURM_SPANK_SLURMV_SPEC={}", "_SLURM_SPANK_OPTION_slurmv_sriov=1", "SLURM_EXPORT_ENV=NONE"}, vmJob{ID: 7, Restart: 2})
	if diff := cmp.Diff([]string{"PATH=/bin", "SLURM_CONF=/c", "SLURM_RESTART_COUNT=2"}, got); diff != "" {
		t.Errorf("environment differs (-want +got):\n%s", diff)
	}
}
