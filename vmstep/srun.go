package vmstep

import (
	"path/filepath"
	"strconv"
	"time"
)

// StepName is the name of the VM step.
const StepName = "slurm-v"

// StepCommand is the srun command of the VM step: one task on each of the job's
// nodes, beside whatever else the job runs. It says everything explicitly; the
// environment it gets ([StepEnv]) says nothing.
//
// Output stays line-buffered: slurmstepd then passes on whole lines, which is
// what keeps the messages of several nodes apart. --no-kill is for the loss of a
// node: the job's own --no-kill decides whether the rest lives on.
func StepCommand(srun, agent string, nodes int) []string {
	n := strconv.Itoa(nodes)
	return []string{
		srun, "--overlap", "-N" + n, "-n" + n, "--ntasks-per-node=1",
		"--mpi=none", "--cpu-bind=none", "--mem=0",
		"--kill-on-bad-exit=1", "--no-kill", "--wait=0",
		"--input=all", "--job-name=" + StepName,
		agent, "hold",
	}
}

// ProgramCommand is the srun command that runs the user's program in the VMs.
// His options come last, so that they win. The step overlaps with the VM step,
// whose CPUs these are; --exclusive says the contrary, and srun refuses both.
// The tasks wait this long for VMs that are still coming up.
func ProgramCommand(srun, agent string, c CommandLine, wait time.Duration) []string {
	args := []string{srun}
	if _, exclusive := c.Given("exclusive"); !exclusive {
		args = append(args, "--overlap")
	}
	// The step is the program's, not ours, in squeue and sacct.
	args = append(args, "--mpi=pmi2", "--job-name="+filepath.Base(c.Program[0]))
	args = append(args, c.Srun...)
	args = append(args, agent, "exec", "--vm-distribution="+c.Distribution)
	if wait > 0 {
		args = append(args, "--wait="+wait.String())
	}
	return append(append(args, "--"), c.Program...)
}
