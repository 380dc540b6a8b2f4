package slurm

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// squeue's answers for number 41: a plain job, or an array.
const (
	aJob = `                  41|                  41|                 N/A|      6002|    n1
`
	anArray = `                  44|                  41|                   2|      6002|    n3
                  43|                  41|                   1|      6002|    n[1-2]
                  41|                  41|                   3|      6002|    n4
`
	anArrayThatWaits = `                  41|                  41|               4-9%2|      6002|
                  43|                  41|                   1|      6002|    n1
`
)

func TestRecordIn(t *testing.T) {
	tests := map[string]struct {
		text   string
		job    uint32
		name   string
		values []string
		err    string
	}{
		"a job":                               {text: aJob, job: 41, name: "41", values: []string{"6002", "n1"}},
		"the task with the array's number":    {text: anArray, job: 41, name: "41_3", values: []string{"6002", "n4"}},
		"another task of it":                  {text: anArray, job: 43, name: "41_1", values: []string{"6002", "n[1-2]"}},
		"tasks that wait":                     {text: anArrayThatWaits, job: 41, name: "41", values: []string{"6002", ""}},
		"a number that begins like another's": {text: strings.ReplaceAll(aJob, "  41|", " 410|"), job: 41, err: "squeue does not list it"},
		"a job that is gone":                  {text: "", job: 41, err: "squeue does not list it"},
		"another job":                         {text: aJob, job: 42, err: "squeue does not list it"},
		"a job twice":                         {text: aJob + aJob, job: 41, err: "squeue lists it twice"},
		"a line that is cut":                  {text: "41|41|N/A\n", job: 41, err: "squeue does not list it"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			name, values, err := recordIn(tt.text, tt.job)
			if tt.err != "" {
				if err == nil || err.Error() != tt.err {
					t.Errorf("error = %v, want %s", err, tt.err)
				}
				return
			}
			if err != nil || name != tt.name {
				t.Errorf("name = %q, %v; want %q", name, err, tt.name)
			}
			if diff := cmp.Diff(tt.values, values); diff != "" {
				t.Errorf("values differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseJob(t *testing.T) {
	const name = "   41|   41|  N/A|"
	tests := map[string]struct {
		line string
		want Job
		err  string
	}{
		"a job": {line: name + " 6002|6003| 1| 2| 1| 1| RUNNING| n[1-2]\n",
			want: Job{Name: "41", UID: 6002, GID: 6003, Restarts: 1, Nodes: 2, Batch: true, Requeue: true, State: "RUNNING", NodeList: "n[1-2]"}},
		"one that waits": {line: name + "6002|6003|0|1|1|1|PENDING|\n",
			want: Job{Name: "41", UID: 6002, GID: 6003, Nodes: 1, Batch: true, Requeue: true, State: "PENDING"}},
		"one of salloc": {line: name + "6002|6003|0|1|0|0|RUNNING|n1\n",
			want: Job{Name: "41", UID: 6002, GID: 6003, Nodes: 1, State: "RUNNING", NodeList: "n1"}},
		"too little":             {line: name + "6002|6003\n", err: "squeue answered 2 fields, not 8"},
		"too much":               {line: name + "6002|6003|0|1|0|0|RUNNING|n1|n2\n", err: "squeue answered 9 fields, not 8"},
		"a user without number":  {line: name + "bob|1|0|1|1|1|RUNNING|n1\n", err: "squeue says something else than numbers"},
		"a number beyond any id": {line: name + "4294967296|1|0|1|1|1|RUNNING|n1\n", err: "squeue says something else than numbers"},
		"a count that is none":   {line: name + "6002|6003|N/A|1|1|1|RUNNING|n1\n", err: "squeue says something else than numbers"},
		"no job":                 {err: "squeue does not list it"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseJob(tt.line, 41)
			if (err == nil) != (tt.err == "") || err != nil && !strings.HasPrefix(err.Error(), tt.err) {
				t.Fatalf("error = %v, want %q", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("job differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseRuns(t *testing.T) {
	got, err := parseRuns("                  41                   0\n                  43                   2\n")
	if diff := cmp.Diff([]RunID{{41, 0}, {43, 2}}, got); diff != "" || err != nil {
		t.Errorf("%v; runs differ (-want +got):\n%s", err, diff)
	}
	for _, text := range []string{"41\n", "41 x\n", "-1 0\n", "41 0 0\n", "4294967296 0\n", "\n"} {
		if got, err := parseRuns(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

// squeue lists all tasks of an array under the number that its last task has, too.
func TestStateOfAnArraysTask(t *testing.T) {
	bin := commands(t, map[string]string{"squeue": `printf '%s\n' ' 9| 7| 2| COMPLETED' ' 7| 7| 3| RUNNING' ' 8| 7| 1| PENDING'`})
	for id, want := range map[uint32]string{7: "RUNNING", 8: "PENDING", 9: "COMPLETED", 6: ""} {
		if got, err := (Client{Bin: bin}).State(t.Context(), id); got != want || err != nil {
			t.Errorf("job %d is %q (%v), want %q", id, got, err, want)
		}
	}
}

func TestIDOf(t *testing.T) {
	for answer, want := range map[string]uint32{"                  42": 42, "": 0, "8\n9": 0} {
		bin := commands(t, map[string]string{"squeue": `[ "$3" = --jobs=sEKNKTV3WPV500 ] || exit 1; printf '` + answer + `\n'`})
		if got, err := (Client{Bin: bin}).IDOf(t.Context(), "sEKNKTV3WPV500"); got != want || (err == nil) != (want != 0) {
			t.Errorf("squeue says %q: %d, %v; want %d", answer, got, err, want)
		}
	}
}

func TestOver(t *testing.T) {
	tests := map[string]bool{"RUNNING\n": false, "SUSPENDED": false, "CONFIGURING": false,
		"": true, "COMPLETED\n": true, "COMPLETING": true, "REQUEUED": true, "PENDING": true, "NODE_FAIL": true}
	for state, want := range tests {
		if got := Over(state); got != want {
			t.Errorf("Over(%q) = %v", state, got)
		}
	}
}

// squeue lists a job by its flag alone: from Slurm 26.05 on a job is RESIZING until its nodes have heard of less memory.
func TestJobsThatAreNotOverHoldTheirNodes(t *testing.T) {
	for _, state := range []string{"RUNNING", "SUSPENDED", "CONFIGURING", "RESIZING", "SIGNALING", "STOPPED"} {
		if Over(state) || !slices.Contains(strings.Split(holdingStates, ","), state) {
			t.Errorf("squeue is not asked for jobs that are %s", state)
		}
	}
}

func TestLives(t *testing.T) {
	for state, want := range map[string]bool{
		"PENDING": true, "RUNNING": true, "CONFIGURING\n": true, "REQUEUE_HOLD": true, "SPECIAL_EXIT": true,
		"COMPLETED": false, "COMPLETING": false, "STAGE_OUT": false, "NODE_FAIL": false, "": false,
	} {
		if got := Lives(state); got != want {
			t.Errorf("a job that is %q lives: %v", state, got)
		}
	}
}

func TestEnded(t *testing.T) {
	for state, want := range map[string]bool{
		"COMPLETED": true, "CANCELLED": true, "TIMEOUT": true, "NODE_FAIL": true, "": true,
		"PENDING": false, "RUNNING": false, "COMPLETING": false, "REQUEUED": false,
	} {
		if got := Ended(state); got != want {
			t.Errorf("a job that is %q has ended: %v", state, got)
		}
	}
}

func TestSubmit(t *testing.T) {
	tests := map[string]struct {
		sbatch string
		id     uint32
		err    string
	}{
		"a number":             {"echo 4217", 4217, ""},
		"a number and cluster": {"echo '4217;deep'", 4217, ""},
		"something else":       {"echo Submitted", 0, `sbatch answered "Submitted\n": that is no job id`},
		"a refusal":            {"echo no such partition >&2; exit 1", 0, "sbatch: no such partition"},
		"what it is told":      {`[ "$*" = "--parsable --chdir=/d --nodes=2 /d/script" ] && echo 1`, 1, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", commands(t, map[string]string{"sbatch": tt.sbatch})+":"+os.Getenv("PATH"))
			id, err := User(os.Environ()).Submit(t.Context(), "/d", "script", "--nodes=2")
			if id != tt.id || (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
				t.Errorf("job %d, error %v; want %d, %s", id, err, tt.id, tt.err)
			}
		})
	}
}
