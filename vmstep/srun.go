package vmstep

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// StepName is the name of the VM step.
const StepName = "slurm-v"

// AgentPath is where every node has the agent.
func AgentPath() string { return filepath.Join(config.Libexec, "slurmv-agent") }

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

// AgentCommand is the srun command of a step that has the agents of the job do
// something: so many tasks on each node, or, with no nodes, one on the first. It
// takes nothing from the programs of the job: it overlaps with them and needs no
// memory of its own.
func AgentCommand(srun string, nodes, tasks int, agent ...string) []string {
	return slices.Concat([]string{srun, "--overlap"}, ShortStep, tasksOn(nodes, tasks), agent)
}

// ShortStep are the options of srun for a step that asks agents something.
var ShortStep = []string{
	"--mpi=none", "--cpu-bind=none", "--mem=0", "--no-kill", "--kill-on-bad-exit=0",
	"--wait=0", "--quiet", "--quit-on-interrupt", "--job-name=slurmv",
}

// tasksOn places tasks on every node, or one on the first.
func tasksOn(nodes, tasks int) []string {
	if nodes == 0 {
		return []string{"--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--relative=0"}
	}
	return []string{fmt.Sprintf("--nodes=%d", nodes), fmt.Sprintf("--ntasks=%d", nodes*tasks), fmt.Sprintf("--ntasks-per-node=%d", tasks)}
}

// ClaimCommand is the srun command of the step that claims an IVShmem device, on the
// job's first node. Its life is the claim's.
func ClaimCommand(srun, agent string, c CommandLine, wait time.Duration) []string {
	claim := []string{agent, "claim"}
	if c.NoWait {
		claim = append(claim, "--no-wait")
	}
	return AgentCommand(srun, 0, 1, append(claim, waiting(wait)...)...)
}

// A Ticket is what the tasks of a run need to know: how long they wait for VMs that
// are still coming up, and the run's claim on an IVShmem device, if it has one.
type Ticket struct {
	Wait  time.Duration
	Claim *nodeagent.Claim
}

func (t Ticket) options() []string {
	options := waiting(t.Wait)
	if t.Claim != nil {
		options = append(options, "--claim="+t.Claim.String())
	}
	return options
}

func waiting(wait time.Duration) []string {
	if wait == 0 {
		return nil
	}
	return []string{"--wait=" + wait.String()}
}

// MpirunCommand is the srun command that runs the user's own mpirun, once, in the
// job's first VM. His options come last; those about tasks are refused.
func MpirunCommand(srun, agent string, c CommandLine, t Ticket) []string {
	args := []string{srun, "--overlap", "--mpi=none", "--cpu-bind=none", "--mem=0", "--job-name=" + filepath.Base(c.Program[0])}
	args = append(append(args, tasksOn(0, 1)...), c.Srun...)
	args = append(append(args, agent, "exec", "--vm=0", "--mpirun"), t.options()...)
	return append(append(args, "--"), c.Program...)
}

// ProgramCommand is the srun command that runs the user's program in the VMs.
// His options come last, so that they win. The step overlaps with the VM step,
// whose CPUs these are; --exclusive says the contrary, and srun refuses both.
func ProgramCommand(srun, agent string, c CommandLine, t Ticket) []string {
	args := []string{srun}
	if _, exclusive := c.Given("exclusive"); !exclusive {
		args = append(args, "--overlap")
	}
	// The step is the program's, not ours, in squeue and sacct.
	args = append(args, "--mpi=pmi2", "--job-name="+filepath.Base(c.Program[0]))
	args = append(args, c.Srun...)
	args = append(append(args, agent, "exec", "--vm-distribution="+c.Distribution), t.options()...)
	return append(append(args, "--"), c.Program...)
}
