package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/program"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/vmstep"
)

func newLaunch() *cobra.Command {
	var path string
	values := map[string]*string{}
	c := &cobra.Command{
		Use:   "launch --vm-per-node=N [VM options]",
		Short: "Start the VMs of this job, on a cluster without the plugin",
		Long: `Start the VMs of this job on this node and hold them, on a cluster without the
plugin. There a batch script has three steps of its own: launch, run and reclaim.
Launch is one task on every node of the job, in the background. It ends with
reclaim, or with the job. The script asks for the CPUs and memory of the VMs itself;
slurmv resources says how many.

Call the step of launch slurm-v: the other commands find its VMs by this name. The
options are those of sbatch with the plugin.

The agent needs root's rights. The administrator gives them with these lines in the
sudoers file of every node:

    ` + securePathLine() + `
    ` + sudoersLine() + `

The agent takes the user from sudo, the job from the caller's cgroup, which Slurm
sets, and the job's CPUs and memory from slurmctld. So it starts nothing beyond what
the caller's own job has. squeue and scontrol must work for root there.

When a job is killed, its last processes may have no time to clean up. If the site's
epilog script calls

    Epilog=` + agentPath() + ` reclaim --job $SLURM_JOB_ID --deadline 2m --last

nothing is left. Otherwise network devices and files of such a job stay until slurmv
clean runs on the node.

EXIT STATUS
===========

    0   the VMs were held until reclaim, or until the job's end
    1   they could not be started or have ended; all of them were reclaimed
    2   the command line cannot be run`,
		Example: `  #SBATCH --nodes=2 --mincpus=4 --mem=5G
  vms="srun --overlap --nodes=2 --ntasks-per-node=1 --mem=0 --cpu-bind=none"
  $vms --job-name=slurm-v --kill-on-bad-exit=1 \
      slurmv launch --vm-per-node=2 --vcpu-per-vm=2 --memory-per-vm=2G --vm-image=/images/mpi.qcow2 &
  srun --overlap --mpi=pmi2 --kill-on-bad-exit=1 --ntasks=8 slurmv run -- ./graph500
  $vms slurmv reclaim`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return runLaunch(c.Context(), path, given(c, values), c.ErrOrStderr())
		},
	}
	for _, o := range jobspec.Options {
		values[o.Name] = c.Flags().String(o.Name, "", strings.TrimPrefix(o.Usage, "[slurm-v] "))
	}
	c.Flags().StringVar(&path, "config", config.Path, "read the configuration from `file`; the node reads its own")
	return c
}

// sudoersLine lets every user start the agent for a job of his own.
func sudoersLine() string {
	return fmt.Sprintf("ALL ALL=(root) NOPASSWD: %[1]s launch --task, %[1]s reclaim --task", agentPath())
}

func runLaunch(ctx context.Context, path string, values map[string]string, words io.Writer) error {
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	spec, err := jobspec.Parse(values, os.Getenv, cfg)
	if err != nil {
		return err
	}
	if err := checkStep(os.Getenv); err != nil {
		return err
	}
	socket, err := nodeagent.SocketFromEnv(cfg.RunDir, os.Getenv)
	if err != nil {
		return err
	}
	agent, err := startAgent(spec, words)
	if err != nil {
		return err
	}
	return agent.end(ctx, hold(ctx, socket))
}

// checkStep refuses a step that would not work, or that slurmv run, ps and the
// other commands would not find.
func checkStep(env func(string) string) error {
	switch {
	case env("SLURM_LOCALID") != "0":
		return usagef("slurmv launch is one task on every node of a job: srun --ntasks-per-node=1 ... slurmv launch")
	case env("SLURM_JOB_NAME") != vmstep.StepName:
		return usagef("the step of slurmv launch must be called %s: srun --job-name=%[1]s ... slurmv launch", vmstep.StepName)
	}
	return nil
}

// securePathLine keeps the caller's PATH from root's programs, where sudo does not already.
// It is a command's setting, so the command stands in it without arguments.
func securePathLine() string {
	return fmt.Sprintf(`Defaults!%s secure_path="%s"`, agentPath(), program.Path)
}

// A rootAgent is the node's agent, started by sudo.
type rootAgent struct {
	sudo  *exec.Cmd
	words *bytes.Buffer // what sudo says
	out   *bufio.Scanner
}

// startAgent returns when the VMs of this node are ready. The agent ends itself
// when the step is cancelled before: sudo passes signals on.
func startAgent(spec jobspec.Spec, words io.Writer) (*rootAgent, error) {
	a := &rootAgent{sudo: sudo("launch"), words: &bytes.Buffer{}}
	a.sudo.Stdin, a.sudo.Stderr = strings.NewReader(spec.Encode()), a.words
	out, err := a.sudo.StdoutPipe()
	if err == nil {
		err = a.sudo.Start()
	}
	if err != nil {
		return nil, sudoError(err, "")
	}
	a.out = bufio.NewScanner(out)
	if err := a.awaitReady(words); err != nil {
		return nil, err
	}
	return a, nil
}

// sudo asks for no password: nobody could give one.
func sudo(command string) *exec.Cmd {
	return exec.Command("sudo", "-n", agentPath(), command, "--task")
}

// awaitReady shows how far the VMs are until they are ready.
func (a *rootAgent) awaitReady(words io.Writer) error {
	terminal := false
	if file, ok := words.(*os.File); ok {
		terminal = term.IsTerminal(int(file.Fd()))
	}
	display := vmstep.Display{Out: words, Terminal: terminal}
	frames := vmstep.Frames{Message: func(m vmstep.Message) {
		var p vmstep.Progress
		if m.Decode(&p) == nil {
			display.Show(vmstep.Event{Node: m.Node, Progress: &p})
		}
	}}
	for a.out.Scan() {
		switch word, text, _ := strings.Cut(a.out.Text(), " "); word {
		case "say":
			fmt.Fprintln(&frames, text)
		case "error":
			_ = a.sudo.Wait()
			return errors.New(text)
		case "ready":
			return nil
		}
	}
	return sudoError(a.sudo.Wait(), a.words.String())
}

// sudoError says why there is no agent, and what an administrator has to do when
// sudo does not run it.
func sudoError(err error, words string) error {
	said := firstLine(strings.TrimSpace(words))
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return errors.New("sudo is not in PATH; slurmv launch and reclaim need it on every node")
	case strings.HasPrefix(said, "sudo: "):
		return fmt.Errorf("%s; the administrator has to let users start the node agent, with this line in the sudoers file of every node: %s", said, sudoersLine())
	}
	return fmt.Errorf("the node agent failed: %w: %s", err, said)
}

// end is the end of this task: it gives back the VMs, unless somebody else had
// the agent do so, which is what a good end of the agent means.
func (a *rootAgent) end(ctx context.Context, holdErr error) error {
	if errors.Is(holdErr, io.EOF) || errors.Is(holdErr, io.ErrUnexpectedEOF) {
		if err := a.sudo.Wait(); err == nil {
			return nil
		}
		holdErr = errors.New("the node agent is gone, and with it the VMs of this node; slurmv logs may say why")
	}
	if ctx.Err() != nil {
		holdErr = nil // the end was wanted
	}
	return errors.Join(holdErr, runReclaim())
}

func newReclaim() *cobra.Command {
	return &cobra.Command{
		Use:   "reclaim",
		Short: "End the VMs that slurmv launch has started on this node",
		Long: `End the VMs that slurmv launch has started for this job on this node, and give
back everything that they hold. It may run any number of times. See slurmv launch.

EXIT STATUS
===========

    0   nothing of the job is left on this node
    1   something is left, or sudo does not run the agent
    2   the command line cannot be run`,
		Example: "  srun --overlap --ntasks-per-node=1 slurmv reclaim",
		Args:    usageArgs(cobra.NoArgs),
		RunE:    func(*cobra.Command, []string) error { return runReclaim() },
	}
}

// runReclaim goes on when the step is told to end: it is what has to be done then.
func runReclaim() error {
	c := sudo("reclaim")
	out, err := c.CombinedOutput()
	switch said := strings.TrimSpace(string(out)); {
	case err == nil:
		return nil
	case strings.HasPrefix(said, "slurmv-agent: "):
		return errors.New(strings.TrimPrefix(said, "slurmv-agent: "))
	default:
		return sudoError(err, said)
	}
}
