package vmstep

import (
	"strings"
	"testing"
)

func TestCause(t *testing.T) {
	tests := map[string]struct{ output, want string }{
		"the agent's sentence, not what follows": {`
slurmstepd-n1: error: slurmv: node n1, vm0: image /x.qcow2: no such file
slurmstepd-n1: error: spank: required plugin slurmv.so: task_init_privileged() failed with rc=-1
slurmstepd-n1: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-11-20T14:11:07 ***
srun: error: n1: task 0: Exited with exit code 1
srun: launch/slurm: _step_signal: Terminating StepId=5.0`,
			"node n1, vm0: image /x.qcow2: no such file"},
		"the agent's sentence behind srun's words": {`
srun: error: n2: task 1: Exited with exit code 1
slurmstepd: error: slurmv: node n2: no space left`,
			"node n2: no space left"},
		"srun cannot make a step": {`
srun: error: Unable to create step for job 5: Requested node configuration is not available`,
			"Unable to create step for job 5: Requested node configuration is not available"},
		"srun gave up before the step had started": {`
srun: error: Task launch for StepId=5.3 failed on node n1: Socket timed out on send/recv operation
srun: error: Application launch failed: Socket timed out on send/recv operation
slurmstepd: error: _send_launch_resp: Failed to send RESPONSE_LAUNCH_TASKS: Connection refused`,
			"Task launch for StepId=5.3 failed on node n1: Socket timed out on send/recv operation"},
		"slurmstepd's own words are not the agent's": {`
slurmstepd-n1: error: Failed to send MESSAGE_TASK_EXIT: Connection refused
slurmstepd-n1: error: _send_launch_resp: Failed to send RESPONSE_LAUNCH_TASKS: Connection refused
slurmstepd-n1: error: couldn't chdir to ` + "`/home/a'" + `: No such file or directory: going to /tmp instead
slurmstepd-n1: error: spank: required plugin slurmv.so: task_init_privileged() failed with rc=-1
slurmstepd-n1: error: Unable to init privileged task`,
			""},
		"the agent's sentence among slurmstepd's": {`
slurmstepd-n1: error: couldn't chdir to ` + "`/home/a'" + `: No such file or directory: going to /tmp instead
slurmstepd-n1: error: Failed to send MESSAGE_TASK_EXIT: Connection refused
slurmstepd-n1: error: slurmv: node n1: no space left`,
			"node n1: no space left"},
		"slurmstepd cannot start the agent": {`
slurmstepd: error: execve(): /usr/local/libexec/slurm-v/slurmv-agent: No such file or directory
srun: error: n1: task 0: Exited with exit code 2`,
			"execve(): /usr/local/libexec/slurm-v/slurmv-agent: No such file or directory"},
		"cancelled": {`
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
slurmstepd-n1: error: *** STEP 2.0 ON n1 CANCELLED AT 2026-11-20T14:11:07 ***
srun: error: n1: task 0: Killed`,
			"the step was cancelled"},
		"the time limit": {`
slurmstepd-sv1: error: *** STEP 1.0 ON sv1 CANCELLED AT 2026-11-20T14:22:03 DUE TO TIME LIMIT ***`,
			"the time limit was reached"},
		"a node failure": {`
slurmstepd-n1: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-11-20T14:22:03 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***`,
			"a node failed"},
		"preemption": {`
slurmstepd-n1: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-11-20T14:22:03 DUE TO PREEMPTION ***`,
			"the step was cancelled: preemption"},
		"nothing to go by": {"hello\nsrun: error: n1: task 0: Killed", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := causeIn(strings.Split(tt.output, "\n")); got != tt.want {
				t.Errorf("cause = %q, want %q", got, tt.want)
			}
		})
	}
}
