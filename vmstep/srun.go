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

// AgentPath is the path of slurmv-agent on every node.
func AgentPath() string { return filepath.Join(config.Libexec, "slurmv-agent") }

// AgentQuery is the command line by which the agent of a node is asked something.
func AgentQuery(words ...string) []string {
	return append([]string{AgentPath(), "query"}, words...)
}

// RelayPath is the path of slurmv-relay on every node.
func RelayPath() string { return filepath.Join(config.Libexec, "slurmv-relay") }

// StepCommand is the srun command of the VM step: one task on each of the job's nodes,
// beside everything else that the job runs. The command sets every option explicitly,
// because the step's environment ([StepEnv]) sets none.
//
// Output stays line-buffered: slurmstepd then passes on whole lines, so messages of several
// nodes do not mix. With --no-kill the step survives the loss of a node; the job's own
// --no-kill decides whether the job does.
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

// ShortCommand is the srun command of a step that briefly runs a program of Slurm-V on the job's nodes. It
// overlaps with the job's programs and needs no memory of its own, so it takes nothing from
// them.
func ShortCommand(srun string, at Placement, program ...string) []string {
	return slices.Concat([]string{srun, "--overlap"}, ShortStep, at, program)
}

// ShortStep are the srun options of a step that only asks agents something.
var ShortStep = []string{
	"--mpi=none", "--cpu-bind=none", "--mem=0", "--no-kill", "--kill-on-bad-exit=0",
	"--wait=0", "--quiet", "--quit-on-interrupt", "--job-name=slurmv",
}

// A Placement is the srun options that say how many tasks a step has, and where.
type Placement []string

// OnNode places one task on the node of that name. (srun --relative=0 would not do: from
// Slurm 24.11 it chooses any node of the job.)
func OnNode(name string) Placement {
	return Placement{"--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--nodelist=" + name}
}

// OnNodes places tasks tasks on each of the job's nodes.
func OnNodes(nodes, tasks int) Placement {
	return Placement{fmt.Sprintf("--nodes=%d", nodes), fmt.Sprintf("--ntasks=%d", nodes*tasks), fmt.Sprintf("--ntasks-per-node=%d", tasks)}
}

// ClaimCommand is the srun command of the step that claims an IVShmem device, on the job's
// first node. The claim lasts as long as the step.
func ClaimCommand(srun, agent, first string, c CommandLine, wait time.Duration) []string {
	claim := []string{agent, "claim"}
	if c.NoWait {
		claim = append(claim, "--no-wait")
	}
	return ShortCommand(srun, OnNode(first), append(claim, waiting(wait)...)...)
}

// A Ticket tells the tasks of a run how long they may wait for VMs that are still coming
// up, and the run's claim on an IVShmem device, if it has one.
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

// MpirunCommand is the srun command that runs the user's own mpirun, once, in the job's
// first VM, which is on the job's first node. The user's options come last, so they win; options about tasks were refused
// before.
func MpirunCommand(srun, relay, first string, c CommandLine, t Ticket) []string {
	args := []string{srun, "--overlap", "--mpi=none", "--cpu-bind=none", "--mem=0", "--job-name=" + filepath.Base(c.Program[0])}
	args = append(append(args, OnNode(first)...), c.Srun...)
	args = append(append(args, relay, "--vm=0", "--mpirun"), t.options()...)
	return append(append(args, "--"), c.Program...)
}

// ProgramCommand is the srun command that runs the user's program in the VMs. The user's
// options come last, so they win. The step overlaps with the VM step, which has the CPUs.
// srun refuses --overlap together with --exclusive, so --overlap is left out if the user
// gives --exclusive.
func ProgramCommand(srun, relay string, c CommandLine, t Ticket) []string {
	args := []string{srun}
	if _, exclusive := c.Given("exclusive"); !exclusive {
		args = append(args, "--overlap")
	}
	// squeue and sacct show the step under the program's name.
	args = append(args, "--mpi=pmi2", "--job-name="+filepath.Base(c.Program[0]))
	if c.PMIx || mayShare(c, t) {
		args = append(args, "--kill-on-bad-exit=1") // a task that is killed cannot say that its rank is gone, and the others wait for ever
	}
	args = append(args, c.Srun...)
	args = append(append(args, relay, "--vm-distribution="+c.Distribution), t.options()...)
	if c.PMIx {
		args = append(args, "--pmix")
	}
	if kill, given := c.Given("kill-on-bad-exit"); given && kill == "0" {
		args = append(args, "--spare-ranks")
	}
	if t.Claim != nil {
		args = append(args, "--mpi-shm="+c.MPIShared)
	}
	if _, quiet := c.Given("quiet"); quiet && t.Claim != nil {
		args = append(args, "--quiet")
	}
	return append(append(args, "--"), c.Program...)
}

// mayShare reports whether MPI may use the memory of the run's device. Ranks that do poll it for ever.
func mayShare(c CommandLine, t Ticket) bool {
	mpi, _ := c.Given("mpi")
	return t.Claim != nil && c.MPIShared != MPISharedOff && mpi != "none"
}
