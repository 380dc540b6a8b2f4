package wrapper

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/internal/mpirun"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/sshkey"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmstep"
)

// runMpirun replaces this process by an srun that runs the user's mpirun in the first VM.
// The first call writes the files that mpirun needs into the VMs, and only there; later
// calls find them.
func runMpirun(ctx context.Context, line vmstep.CommandLine, job vmstep.Job, wait time.Duration) error {
	srun, err := slurm.Srun()
	if err != nil {
		return err
	}
	p := preparation{srun: srun, job: job, dir: mpirun.Dir(os.Getuid()), wait: wait}
	if err := p.run(ctx); err != nil {
		return fmt.Errorf("prepare the VMs for mpirun: %w", err)
	}
	claim, err := claimDevice(line, job, wait)
	if err != nil {
		return err
	}
	ticket := vmstep.Ticket{Wait: wait, Claim: claim}
	// Slurm's variables describe the job's tasks, not this step's single one.
	return become(vmstep.MpirunCommand(srun, vmstep.RelayPath(), job.First, line, ticket), vmstep.StepEnv(os.Environ()))
}

// A preparation lets the VMs of a job reach each other by ssh.
type preparation struct {
	srun string
	job  vmstep.Job
	dir  string        // of mpirun's files in the VMs
	wait time.Duration // for VMs that another host's keeper is starting
}

func (p preparation) run(ctx context.Context) error {
	if done, err := p.done(ctx); done || err != nil {
		return err
	}
	key, err := sshkey.New(fmt.Sprintf("slurmv-job-%d", p.job.ID))
	if err != nil {
		return err
	}
	nodes, err := p.announce(ctx, key)
	if err != nil {
		return err
	}
	files := mpirun.Files{Dir: p.dir, Key: key.Private, Nodes: nodes, Slots: p.job.VCPUs}
	return p.write(ctx, files, len(nodes[0].VMs))
}

// done asks the first VM whether the files are there already.
func (p preparation) done(ctx context.Context) (bool, error) {
	relay := append([]string{vmstep.RelayPath(), "--vm=0", "--wait=" + max(p.wait, 5*time.Second).String(), "--"}, mpirun.Prepared(p.dir)...)
	said, err := p.step(ctx, vmstep.OnNode(p.job.First), nil, relay)
	return strings.Contains(said, mpirun.Done), err
}

// announce makes every VM accept the key and returns the VMs, in order. The keys go through
// standard input, because every user can read a command line.
func (p preparation) announce(ctx context.Context, key sshkey.Pair) ([]nodeagent.NodeVMs, error) {
	host, err := sshkey.New("slurmv")
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(sshkey.Announcement{Authorized: key.Public, Host: host.Private})
	if err != nil {
		return nil, err
	}
	var nodes []nodeagent.NodeVMs
	err = vmstep.Query(ctx, func(ctx context.Context) *exec.Cmd {
		return p.command(ctx, vmstep.OnNodes(p.job.Nodes, 1), bytes.NewReader(text), vmstep.AgentQuery("key"))
	}, func(m vmstep.Message) error {
		var n nodeagent.NodeVMs
		if m.Kind != vmstep.KindVMs {
			return nil
		}
		err := m.Decode(&n)
		nodes = append(nodes, n)
		return err
	})
	if err == nil && len(nodes) != p.job.Nodes {
		err = fmt.Errorf("%d of %d nodes have answered", len(nodes), p.job.Nodes)
	}
	slices.SortFunc(nodes, func(a, b nodeagent.NodeVMs) int { return a.Rank - b.Rank })
	return nodes, err
}

// write puts the files into every VM. It starts as many tasks on a node as the node has
// VMs, so each VM gets one.
func (p preparation) write(ctx context.Context, files mpirun.Files, perNode int) error {
	said, err := p.step(ctx, vmstep.OnNodes(p.job.Nodes, perNode), strings.NewReader(files.Script()), []string{vmstep.RelayPath(), "--", "/bin/sh"})
	if done, all := strings.Count(said, mpirun.Done), p.job.Nodes*perNode; err == nil && done != all {
		err = fmt.Errorf("%d of %d VMs have the files", done, all)
	}
	return err
}

// step runs relays and returns the output of their programs.
func (p preparation) step(ctx context.Context, at vmstep.Placement, stdin io.Reader, relay []string) (string, error) {
	var out, words bytes.Buffer
	c := p.command(ctx, at, stdin, relay)
	c.Stdout, c.Stderr = &out, &words
	err := c.Run()
	if err != nil {
		err = vmstep.NewStepError(err, words.String())
	}
	return out.String(), err
}

func (p preparation) command(ctx context.Context, at vmstep.Placement, stdin io.Reader, program []string) *exec.Cmd {
	args := vmstep.ShortCommand(p.srun, at, program...)
	c := vmstep.StepProcess(ctx, args, vmstep.StepEnv(os.Environ()))
	c.Stdin = stdin
	return c
}
