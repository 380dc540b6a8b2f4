package entitle

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric/node"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/slurm/cgroup"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// asPlaced makes a /proc where this process is in step 3 of job 9.
func asPlaced(t *testing.T) (proc string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	text := "6:freezer:/slurm/uid_1000/job_9/step_3\n4:memory:/slurm/uid_1000/job_9/step_3/task_0\n"
	if err := os.WriteFile(filepath.Join(dir, "cgroup"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(dir)
}

func TestTagsFromPlugin(t *testing.T) {
	env := map[string]string{"SLURMV_JOB": "7", "SLURMV_RESTART": "1", "SLURMV_STEP": "3", "SLURMV_UID": "1000", "SLURMV_GID": "100", "SLURMV_CPUS": "8", "SLURMV_NODE": "n1"}
	want := node.Job{ID: journal.ID{Job: 7, Restart: 1}, Step: 3, UID: 1000, GID: 100, Cores: 8}
	if got, err := TagsFromPlugin(func(name string) string { return env[name] }); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for name := range env {
		_, err := TagsFromPlugin(func(asked string) string {
			if asked == name {
				return ""
			}
			return env[asked]
		})
		if err == nil {
			t.Errorf("without %s there is no error", name)
		}
	}
}

func TestCheckOwnPlace(t *testing.T) {
	tests := map[string]struct{ job, step, want string }{
		"its own step":  {"9", "3", ""},
		"another job":   {"8", "3", "this process is not in the cgroup of step 3 of job 8"},
		"another step":  {"9", "0", "this process is not in the cgroup of step 0 of job 9"},
		"no job":        {"", "3", "SLURMV_JOB is not set"},
		"no step":       {"9", "", "SLURMV_STEP is not set"},
		"an odd number": {"9", "-1", "SLURMV_STEP: "},
	}
	proc := asPlaced(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			env := map[string]string{"SLURMV_JOB": tt.job, "SLURMV_STEP": tt.step}
			err := CheckOwnPlace(proc, func(name string) string { return env[name] })
			if (err == nil) != (tt.want == "") || err != nil && !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
		})
	}
}

// slurmSays makes a client of programs that print what slurmctld says of job 9: Slurm's
// texts of that job on node n1, as scontrol and squeue of 22.05 write them.
func slurmSays(t *testing.T) slurm.Client {
	t.Helper()
	bin := t.TempDir()
	for name, script := range map[string]string{
		"squeue": `case "$*" in *--jobs=sEKNKTV3WPV500*) echo '                   9'; exit;; esac
echo '                   9|                   9|                 N/A|                6002|                6003|           1|           2|       1|       1|             RUNNING|n[1-2]'`,
		"scontrol": `case "$*" in
"show hostnames n[1-2]") printf 'n1\nn2\n';;
*"--details show job 9") echo 'JobId=9 JobName=x UserId=bob(6002) JOB_GRES=vf:4   Nodes=n[1-2] CPU_IDs=0-3 Mem=2560 GRES=vf:2(IDX:0-1),vfbw(CNT:5000) MinCPUsNode=4';;
*) exit 1;;
esac`,
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return slurm.Client{Bin: bin}
}

func TestAddVFs(t *testing.T) {
	counted, job := config.Config{}, plan.Job{Node: "n2"}
	counted.Slurm.GRES = true
	job.ID.Job = 9
	job.Spec.SRIOV.VFs = make([]jobspec.VF, 1)
	for name, tt := range map[string]struct {
		cfg  config.Config
		want string
	}{
		"where Slurm counts them":            {counted, "2 VFs, 5000 Mb/s"},
		"where it does not, nobody is asked": {config.Config{}, "0 VFs, 0 Mb/s"},
	} {
		got := job
		err := AddVFs(t.Context(), slurmSays(t), tt.cfg, &got)
		if text := fmt.Sprintf("%d VFs, %d Mb/s", got.VFs, got.VFMbps); err != nil || text != tt.want {
			t.Errorf("%s: %s, %v; want %s", name, text, err, tt.want)
		}
	}
}

func TestRecordOf(t *testing.T) {
	want := plan.Job{Step: 3, UID: 6002, GID: 6003, Node: "n2", Rank: 1, Nodes: 2, CPUs: 4, Memory: 2560, VFs: 2, VFMbps: 5000}
	want.ID.Job, want.ID.Restart = 9, 1
	for _, job := range []cgroup.Job{"job_9", "sEKNKTV3WPV500"} {
		got, err := recordOf(t.Context(), slurmSays(t), cgroup.Step{Job: job, StepID: 3, Node: "n2"})
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v; job differs (-want +got):\n%s", job, err, diff)
		}
	}
	if got, err := recordOf(t.Context(), slurmSays(t), cgroup.Step{Job: "job_9", Node: "n3"}); err == nil {
		t.Errorf("a node that is none of the job's has %+v", got)
	}
}

func TestTheJobAsksWhichNodesItHas(t *testing.T) {
	job := plan.Job{}
	job.ID.Job = 9
	asks := Asks(slurmSays(t), job.ID.Job)
	got, err := asks.Hosts(t.Context(), config.Network{Peers: "%n.ib"})
	if diff := cmp.Diff(map[string]string{"n1": "n1.ib", "n2": "n2.ib"}, got); diff != "" || err != nil {
		t.Errorf("%v; hosts differ (-want +got):\n%s", err, diff)
	}
}
