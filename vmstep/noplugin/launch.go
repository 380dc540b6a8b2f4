// Package noplugin has slurmv launch, run and reclaim: they give a job VMs on a cluster
// without the plugin. Users start the node agent with sudo in a step of their own. Package
// entitle decides what the agent then believes.
package noplugin

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

	"golang.org/x/term"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmstep"
)

// Launch starts the VMs of this job on this node and holds them until they are reclaimed or
// the step ends. It shows their progress on words.
func Launch(ctx context.Context, cfg config.Config, spec jobspec.Spec, words io.Writer) error {
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

// checkStep refuses a step in which launching would not work, or that slurmv run, ps and
// the other commands would not find.
func checkStep(env func(string) string) error {
	switch {
	case env(slurm.EnvLocalID) != "0":
		return usagef("slurmv launch is one task on every node of a job: srun --ntasks-per-node=1 ... slurmv launch")
	case env(slurm.EnvJobName) != vmstep.StepName:
		return usagef("the step of slurmv launch must be called %s: srun --job-name=%[1]s ... slurmv launch", vmstep.StepName)
	}
	return nil
}

// A rootAgent is the node's agent, started by sudo.
type rootAgent struct {
	sudo  *exec.Cmd
	words *bytes.Buffer // sudo's stderr
	out   *bufio.Scanner
}

// startAgent starts the agent and returns when the VMs of this node are ready. If the step
// is cancelled before, the agent ends itself, because sudo passes signals on.
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

// sudo runs a command of the agent as root. It never asks for a password, because nobody
// could type one.
func sudo(command string) *exec.Cmd {
	return exec.Command("sudo", "-n", vmstep.AgentPath(), command, "--task")
}

// awaitReady shows the progress of the VMs until they are ready.
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

// sudoError says why there is no agent. If sudo refuses to run it, the error says what an
// administrator has to do.
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

// end ends this task: it gives back the VMs, unless the agent has ended without an error.
// In that case another process made the agent give them back.
func (a *rootAgent) end(ctx context.Context, holdErr error) error {
	if errors.Is(holdErr, io.EOF) || errors.Is(holdErr, io.ErrUnexpectedEOF) {
		if err := a.sudo.Wait(); err == nil {
			return nil
		}
		holdErr = errors.New("the node agent is gone, and with it the VMs of this node; slurmv logs may say why")
	}
	if ctx.Err() != nil {
		holdErr = nil // the step is ending, so this is no error
	}
	return errors.Join(holdErr, Reclaim())
}

// Reclaim ends the VMs of this job on this node and gives back everything that they hold.
// It finishes even if Slurm ends the step meanwhile.
func Reclaim() error {
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

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

func usagef(format string, args ...any) error {
	return &vmstep.UsageError{Reason: fmt.Sprintf(format, args...)}
}
