package jobvms

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmstep"
)

// A Step is a Slurm step of a job that runs a program of Slurm-V on its nodes.
type Step struct {
	Job     slurm.StepJob
	Node    string    // one node, or "" for all
	Command []string  // the program and its arguments; see [vmstep.AgentQuery]
	Stdin   io.Reader // nil for no input
}

// Run passes every message of the agents to take. It returns the first refusal of an
// agent, in the agent's words, or else srun's error. If one node refuses, the others
// still answer.
func (s Step) Run(ctx context.Context, take func(vmstep.Message) error) error {
	err := vmstep.Query(ctx, s.command, take)
	var failed *vmstep.StepError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("job %s: its nodes did not answer within %s", s.Job.Name, patience)
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("ask the nodes of job %s: %w", s.Job.Name, slurm.NotInPATH("srun"))
	case errors.As(err, &failed):
		return fmt.Errorf("ask the nodes of job %s: %w", s.Job.Name, err)
	case err != nil:
		return fmt.Errorf("job %s: %w", s.Job.Name, err)
	}
	return nil
}

func (s Step) command(ctx context.Context) *exec.Cmd {
	args := stepArgs(s.Job, s.Node, s.Command)
	if s.Stdin == nil {
		args = append([]string{"--input=none"}, args...)
	}
	c := vmstep.StepProcess(ctx, append([]string{"srun"}, args...), stepEnv(os.Environ(), s.Job))
	c.Stdin = s.Stdin
	return c
}

// stepEnv returns the environment of a step that asks the agents of job. It removes the
// variables of the job in which slurmv itself may run. It also removes VM options, so
// that our plugin ignores the step.
func stepEnv(env []string, job slurm.StepJob) []string {
	kept := slices.DeleteFunc(vmstep.StepEnv(env), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slurm.NamesJob(name) || slurm.OfAPlugin(name)
	})
	return append(kept, fmt.Sprintf("%s=%d", slurm.EnvRestarts, job.Restart))
}

// stepArgs returns srun's arguments for a step of job that runs the command on the named
// node, or on all of them. The step takes no resources from the job's programs: it
// overlaps with them and needs no memory of its own.
func stepArgs(job slurm.StepJob, node string, command []string) []string {
	args := append([]string{"--overlap", fmt.Sprintf("--jobid=%d", job.ID)}, vmstep.ShortStep...)
	if node == "" {
		args = append(args, fmt.Sprintf("--nodes=%d", job.Nodes), fmt.Sprintf("--ntasks=%d", job.Nodes), "--ntasks-per-node=1")
	} else {
		args = append(args, "--nodes=1", "--ntasks=1", "--nodelist="+node)
	}
	return append(args, command...)
}

// Ignore discards a message.
func Ignore(vmstep.Message) error { return nil }

// StreamTo returns a function that writes the bytes of a stream to out.
func StreamTo(out io.Writer) func(vmstep.Message) error {
	return func(m vmstep.Message) error {
		if m.Kind != vmstep.KindData {
			return nil
		}
		var p []byte
		if err := m.Decode(&p); err != nil {
			return err
		}
		_, err := out.Write(p)
		return err
	}
}
