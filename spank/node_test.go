package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const spec = "JOB:SLURM_SPANK_SLURMV_SPEC={}"

// A node is one of a VM job, with a shell script as its agent.
type node struct {
	agent, state string
	shim         string
}

func newNode(t *testing.T, script string) node {
	t.Helper()
	n := node{agent: filepath.Join(t.TempDir(), "agent"), state: filepath.Join(t.TempDir(), "%n"), shim: "slurmv.so"}
	if script == "" {
		return n
	}
	if err := os.WriteFile(n.agent, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return n
}

// run calls the hooks in slurmstepd on node n1, in the step whose program is "AGENT verb".
func (n node) run(t *testing.T, verb string, env []string, context string, hooks ...string) []string {
	t.Helper()
	env = append([]string{"SLURMD_NODENAME=n1", "HOST_PROGRAM=" + n.agent + " " + verb, "SECRET=1"}, env...)
	actions := append([]string{"arg:agent=" + n.agent, "arg:config=/c", "arg:state=" + n.state}, hooks...)
	return hostOf(t, filepath.Join(labDir(t), n.shim), env, context, actions...)
}

func (n node) shorten(lines []string) []string {
	return strings.Split(strings.ReplaceAll(strings.Join(lines, "\n"), n.agent, "AGENT"), "\n")
}

func TestLaunch(t *testing.T) {
	failed := []string{"user_init: 0", "task_post_fork: 0", "task_init_privileged: -1"}
	with := func(lines ...string) []string {
		return append(append([]string{}, failed[:2]...), append(lines, failed[2])...)
	}
	tests := map[string]struct {
		verb   string // "hold" unless given
		agent  string // none: the program does not exist
		env    []string
		noSpec bool
		shim   string
		want   []string
	}{
		"the task starts when the agent is ready": {
			agent: "echo ready >&3",
			want:  []string{"user_init: 0", "task_post_fork: 0", "task_init_privileged: 0"},
		},
		"progress is passed on as it is": {
			agent: "echo 'say @slurmv1 n1 %s' >&3; echo ready >&3",
			want:  []string{"user_init: 0", "task_post_fork: 0", "log: @slurmv1 n1 %s", "task_init_privileged: 0"},
		},
		"the agent's error is the user's": {
			agent: "echo 'error node n1: vm1: /x is not an image' >&3; exit 1",
			want:  with("error: slurmv: node n1: vm1: /x is not an image"),
		},
		"a last line without an end is shown": {
			agent: "printf 'error cut' >&3",
			want:  with("error: slurmv: cut"),
		},
		"an agent without a word": {
			agent: "exit 7",
			want:  with("error: slurmv: node n1: AGENT launch: exit status 7, and no reason given"),
		},
		"no agent": {
			want: with("error: slurmv: node n1: AGENT launch: No such file or directory"),
		},
		"a job that was submitted without VMs": {
			agent: "echo ready >&3", noSpec: true,
			want: with("error: slurmv: node n1: job 4217 has no VMs: submit it with --vm-per-node"),
		},
		"an agent that is killed": {
			agent: "kill -9 $$",
			want:  with("error: slurmv: node n1: AGENT launch: killed by signal 9"),
		},
		"a cancel ends the agent at once and needs no words": {
			agent: "trap 'exit 1' TERM; kill -TERM $PPID; while :; do sleep 0.02; done",
			want:  with(),
		},
		"a cancel lets the agent say something": {
			agent: "trap 'echo error vm1 stopped >&3; exit 1' TERM; kill -TERM $PPID; while :; do sleep 0.02; done",
			want:  with("error: slurmv: vm1 stopped"),
		},
		"a cancel wins over ready": {
			agent: "trap 'exit 1' TERM; kill -TERM $PPID; echo ready >&3; while :; do sleep 0.02; done",
			want:  with(),
		},
		"an agent that ignores the cancel is killed": {
			agent: "trap '' TERM; kill -TERM $PPID; while :; do sleep 0.02; done", shim: impatient,
			want: with(),
		},
		"a second task of the step does nothing": {
			agent: "exit 7", env: []string{"HOST_TASK=1"},
			want: []string{"user_init: 0", "task_post_fork: 0", "task_init_privileged: 0"},
		},
		"any other step does nothing": {
			verb: "exec -- hold", agent: "exit 7",
			want: []string{"user_init: 0", "task_post_fork: 0", "task_init_privileged: 0"},
		},
		"a component of a heterogeneous job is refused": {
			agent: "echo ready >&3", env: []string{"JOB:SLURM_HET_SIZE=2"},
			want: with("error: slurmv: node n1: a heterogeneous job cannot have VMs"),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, tt.agent)
			if tt.shim != "" {
				n.shim = tt.shim
			}
			if tt.verb == "" {
				tt.verb = "hold"
			}
			if !tt.noSpec {
				tt.env = append(tt.env, spec)
			}
			got := n.run(t, tt.verb, tt.env, stepd, "user_init", "task_post_fork", "task_init_privileged")
			if diff := cmp.Diff(tt.want, n.shorten(got)); diff != "" {
				t.Errorf("the host saw (-want +got):\n%s", diff)
			}
		})
	}
}

const outside = "error: slurmv: node n1: Slurm has not moved the task into its cgroups, " +
	"so what it starts would be outside of the job; see slurmd's log"

// An agent outside of its step's cgroups has no limit, and outlives the job.
func TestLaunchNeedsThePlacement(t *testing.T) {
	tests := map[string]struct {
		hooks []string
		want  []string
	}{
		"once Slurm has moved the task": {
			[]string{"user_init", "task_post_fork", "task_init_privileged"},
			[]string{"user_init: 0", "task_post_fork: 0", "log: the agent runs", "task_init_privileged: 0"},
		},
		"Slurm does not say so": {
			[]string{"user_init", "task_init_privileged"},
			[]string{"user_init: 0", outside, "task_init_privileged: -1"},
		},
		"nothing to say it by": {
			[]string{"task_init_privileged"},
			[]string{outside, "task_init_privileged: -1"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "echo say the agent runs >&3; echo ready >&3")
			if diff := cmp.Diff(tt.want, n.run(t, "hold", []string{spec}, stepd, tt.hooks...)); diff != "" {
				t.Errorf("the host saw (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLaunchGivesTheAgentNothingButItsOwn(t *testing.T) {
	n := newNode(t, `say() { echo "say $*" >&3; }
say arguments "$@"
say directory $(pwd)
say session $(($(cut -d' ' -f6 /proc/$$/stat) == $$))
say blocked $(sed -n 's/SigBlk:.*\(....\)$/\1/p' /proc/$$/status)
for fd in 0 1 2 7; do say descriptor $fd $(readlink /proc/$$/fd/$fd || echo closed); done
env -u PWD -u OLDPWD -u SHLVL -u _ | sort | sed 's/^/say /' >&3
echo ready >&3`)
	got := n.run(t, "hold", []string{spec, "JOB:SLURM_CLUSTER_NAME=c1", "JOB:SLURM_JOB_NAME=my job", "JOB:LD_PRELOAD=/evil.so",
		"JOB:SLURMV_REQUESTED=1700000000000",
		"SLURM_CONF=/etc/slurm.conf"}, stepd, "user_init", "task_post_fork", "task_init_privileged")
	want := []string{
		"user_init: 0", "task_post_fork: 0",
		"log: arguments launch --config /c", "log: directory /", "log: session 1", "log: blocked 0000",
		"log: descriptor 0 /dev/null", "log: descriptor 1 /dev/null", "log: descriptor 2 /dev/null", "log: descriptor 7 closed",
		"log: PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"log: SLURMV_CPUS=8", "log: SLURMV_GID=100",
		"log: SLURMV_JOB=4217", "log: SLURMV_MEM=4096", "log: SLURMV_NODE=n1",
		"log: SLURMV_NODES=2", "log: SLURMV_NODE_RANK=1", "log: SLURMV_REQUESTED=1700000000000", "log: SLURMV_RESTART=5", "log: SLURMV_SPEC={}",
		"log: SLURMV_STEP=3", "log: SLURMV_UID=1000", "log: SLURM_CONF=/etc/slurm.conf",
		"task_init_privileged: 0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the agent saw (-want +got):\n%s", diff)
	}
}

func TestReclaimGetsOnlyWhatItReads(t *testing.T) {
	const say = "env -u PWD -u OLDPWD -u SHLVL -u _ | sort | sed 's/^/say /' >&3"
	want := []string{
		"log: PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"log: SLURMV_NODE=n1", "log: SLURM_CONF=/etc/slurm.conf",
	}
	for hook, context := range map[string]string{"task_exit": stepd, "job_epilog": jobScript} {
		n := newNode(t, say)
		got := n.run(t, "hold", []string{spec, "SLURM_CONF=/etc/slurm.conf", "SLURM_CLUSTER_NAME=c1", "JOB:SLURM_JOB_NAME=my job"}, context, hook)
		if diff := cmp.Diff(append(slices.Clone(want), hook+": 0"), got); diff != "" {
			t.Errorf("the agent saw, by %s (-want +got):\n%s", hook, diff)
		}
	}
}

func TestReclaim(t *testing.T) {
	const say = `echo "say $*" >&3`
	held := func(t *testing.T, n node, jobs ...string) {
		for _, job := range jobs {
			if err := os.MkdirAll(filepath.Join(strings.ReplaceAll(n.state, "%n", "n1"), "jobs", job), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := map[string]struct {
		agent   string
		env     []string
		context string
		hook    string
		jobs    []string
		want    []string
	}{
		"task_exit gives a deadline and the step": {
			agent: say, context: stepd, hook: "task_exit",
			want: []string{"log: reclaim --config /c --job 4217 --restart 5 --step 3 --deadline 20s", "task_exit: 0"},
		},
		"the restart count of an srun is in its environment": {
			agent: say, env: []string{"HOST_RESTART=0", "JOB:SLURM_RESTART_COUNT=2"}, context: stepd, hook: "task_exit",
			want: []string{"log: reclaim --config /c --job 4217 --restart 2 --step 3 --deadline 20s", "task_exit: 0"},
		},
		"a failing reclaim is told and fails nothing": {
			agent: "echo error vf 3 is stuck >&3; exit 3", context: stepd, hook: "task_exit",
			want: []string{"error: slurmv: vf 3 is stuck", "task_exit: 0"},
		},
		"a reclaim that dies is told": {
			agent: "kill -9 $$", context: stepd, hook: "task_exit",
			want: []string{"error: slurmv: node n1: AGENT reclaim: killed by signal 9", "task_exit: 0"},
		},
		"the epilog reclaims a job that holds something": {
			agent: say, context: jobScript, hook: "job_epilog", jobs: []string{"17.0", "4217.1"},
			want: []string{"log: reclaim --config /c --job 4217 --deadline 2m --last", "job_epilog: 0"},
		},
		"the epilog starts nothing for another job": {
			agent: say, context: jobScript, hook: "job_epilog", jobs: []string{"17.0", "42170.0", "421.0"},
			want: []string{"job_epilog: 0"},
		},
		"the epilog of a job that slurmctld has forgotten gives back its tags": {
			agent: say, context: jobScript, hook: "job_epilog", jobs: []string{"17.0", "../fabric/jobs/4217.0"},
			want: []string{"log: reclaim --config /c --job 4217 --deadline 2m --last", "job_epilog: 0"},
		},
		"the epilog asks the agent where the state is elsewhere": {
			agent: say, context: jobScript, hook: "job_epilog",
			want: []string{"log: reclaim --config /c --job 4217 --deadline 2m --last", "job_epilog: 0"},
		},
		"a failing epilog does not drain the node": {
			agent: "exit 3", context: jobScript, hook: "job_epilog",
			want: []string{"error: slurmv: node n1: AGENT reclaim: exit status 3, and no reason given", "job_epilog: 0"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, tt.agent)
			held(t, n, tt.jobs...)
			got := n.run(t, "hold", tt.env, tt.context, tt.hook)
			if diff := cmp.Diff(tt.want, n.shorten(got)); diff != "" {
				t.Errorf("the host saw (-want +got):\n%s", diff)
			}
		})
	}
}
