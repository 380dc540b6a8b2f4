package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/check"
	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/internal/jobvms"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/internal/prove"
	"github.com/slurm-v/slurm-v/slurm"
)

type proveOptions struct {
	prove.Request
	config, out, user string
	memory            string
	partition         string
	options           []string
	wait              time.Duration
	checked           bool // root has run slurmv check, and this process is the user's
}

func newProve() *cobra.Command {
	var o proveOptions
	c := &cobra.Command{
		Use:   "prove [flags]",
		Short: "Prove by jobs of this site that Slurm-V works here, and measure what VMs cost",
		Long: `Prove by jobs of this site that Slurm-V works here, and measure what VMs cost.

It submits a few jobs, one after the other, and judges what they have done: the nodes
have what VM jobs need; VMs boot; ranks in them find each other; streams, exit status,
files, virtual functions and shared memory are right; jobs end as they should; and the
nodes have nothing left of them. The same program is measured in the VMs and on their
bare nodes, in turns: computation, memory, messages. The page reports a difference
only if it is greater than the spread of the measured values.

The results are in the directory --out: a page, prove.html, and prove.json. They have no
names of hosts and users, no addresses and no paths, so that a site can send them. The
directory jobs beside them has the scripts of the jobs and all that they have printed,
with all names. All hosts must see the directory.

Run it on a submit host or a node, as a user who may submit jobs. As root on a node it
also tries what only root can, as slurmv check does; with --user it then submits the
jobs as that user.

Measure on nodes with nothing else to do. With --program the site's own program is
measured, too. It must run on the node and in the VM; it is copied to the job's directory.

EXIT STATUS
===========

    0   no step has failed
    1   a step has failed, or something could not be tried
    2   the command line cannot be run`,
		Example: `  slurmv prove
  slurmv prove --partition=test --image=debian12-mpi --nodes=2 --vcpu-per-vm=8
  slurmv prove --sriov=1 --sbatch=--account=hpc --program='/apps/ft.B.16'
  slurmv prove --quick --user=alice`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return cli.Usagef("%v", err)
			}
			return runProve(c.Context(), o, !c.Flags().Changed("nodes"), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	o.flags(c)
	return c
}

func (o *proveOptions) flags(c *cobra.Command) {
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&o.Image, "image", "", "boot the VMs from this `image`, a file or a name of the catalogue, not from the site's default")
	f.StringVarP(&o.partition, "partition", "p", "", "submit to this `partition`")
	f.IntVarP(&o.Nodes, "nodes", "N", 2, "use this `number` of nodes; without this flag one, if Slurm refuses two")
	f.IntVar(&o.VMs, "vm-per-node", 2, "start this `number` of VMs on each node")
	f.IntVar(&o.VCPUs, "vcpu-per-vm", 1, "give each VM this `number` of CPUs; each has a rank")
	f.StringVar(&o.memory, "memory-per-vm", "", "give each VM this `size` of memory; without this flag what the measurements need")
	f.StringVar(&o.SRIOV, "sriov", "", "give each VM virtual `functions`, as sbatch does")
	f.IntVar(&o.IVShmem, "ivshmem", -1, "give the VMs this `number` of shared-memory devices; without this flag one, where QEMU has them")
	f.StringVar(&o.HugePages, "vm-hugepages", "", "give the VMs memory of huge pages of this `size`, as sbatch does")
	f.StringVar(&o.Program, "program", "", "measure this `command`, too")
	f.IntVar(&o.Rounds, "rounds", prove.LeastRounds, "measure this many `times` on each side")
	f.IntVarP(&o.Minutes, "time", "t", 120, "give the jobs this many `minutes`, if the partition allows fewer or the program needs more")
	f.BoolVar(&o.Quick, "quick", false, "measure little, and do not wait for a time limit")
	f.StringArrayVar(&o.options, "sbatch", nil, "add an `option` of sbatch to all jobs, such as --account=hpc; may be given several times")
	f.DurationVar(&o.wait, "wait", 2*time.Hour, "wait at most this `long` for each job, with its time in the queue")
	f.StringVarP(&o.out, "out", "o", "", "write into this `directory`, which must be new or empty (default slurmv-prove-DATE)")
	f.StringVar(&o.user, "user", "", "as root: submit the jobs as this `user`")
	f.StringVar(&o.config, "config", config.Path, "read the configuration from `file`")
	f.BoolVar(&o.checked, "checked", false, "")
	_ = f.MarkHidden("checked")
}

// complete checks the flags and joins them to the request.
func (o *proveOptions) complete() error {
	if err := o.readMemory(); err != nil {
		return fmt.Errorf("--memory-per-vm: %w", err)
	}
	if o.partition != "" {
		o.Options = append(o.Options, "--partition="+o.partition)
	}
	for _, option := range o.options {
		if !strings.HasPrefix(option, "-") || strings.ContainsAny(option, "\n\r") {
			return fmt.Errorf("--sbatch: %q is no option of sbatch; use one such as --account=hpc", option)
		}
		o.Options = append(o.Options, option)
	}
	if o.out == "" {
		o.out = "slurmv-prove-" + time.Now().Format("20060102-150405")
	}
	err := o.Validate()
	if err == nil && strings.Contains(o.Image, "/") {
		o.Image, err = filepath.Abs(o.Image)
	}
	return err
}

func (o *proveOptions) readMemory() error {
	if o.memory == "" {
		o.MemoryMiB = max(512, o.LeastMemoryMiB())
		return nil
	}
	size, err := config.ParseSize(o.memory)
	o.MemoryMiB = size.MiB()
	return err
}

func runProve(ctx context.Context, o proveOptions, oneNode bool, out, words io.Writer) error {
	own, err := o.ownChecks(ctx)
	if err != nil {
		return err
	}
	if o.user != "" && !o.checked {
		return proveAs(ctx, o.user, own)
	}
	proof, err := o.prove(ctx, oneNode, own, words)
	if err != nil {
		return err
	}
	if err := proof.WriteText(out); err != nil {
		return err
	}
	fmt.Fprintf(words, "slurmv: the results are in %s, and what the jobs have printed in %s\n",
		filepath.Join(o.out, prove.PageFile), filepath.Join(o.out, prove.JobsDir))
	if !proof.Passed {
		return jobvms.ExitStatus(1)
	}
	return nil
}

// ownChecks is what slurmv check says to root on a node; nil for users and on other hosts.
// If root has made this process a user's, the results come on standard input.
func (o proveOptions) ownChecks(ctx context.Context) (own []check.Result, err error) {
	if o.checked {
		err = json.NewDecoder(os.Stdin).Decode(&own)
		return own, err
	}
	node, err := slurm.NodeName("")
	if err != nil || os.Geteuid() != 0 || !check.IsNode("/", node) {
		return nil, err
	}
	return preflight(o.config, node).Check(ctx), nil
}

// proveAs runs this command again as a user, in a process that has wholly become that user.
func proveAs(ctx context.Context, name string, own []check.Result) error {
	if os.Geteuid() != 0 {
		return errors.New("--user: only root can submit jobs as another user")
	}
	as, err := owner.ByName(name)
	if err != nil {
		return fmt.Errorf("--user: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	checks, err := json.Marshal(own)
	if err != nil {
		return err
	}
	c := as.Command(ctx, self, append(slices.Clone(os.Args[1:]), "--checked")...)
	c.Dir, c.Env = "", as.LoginEnviron(slurm.ConfVariables)
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(checks), os.Stdout, os.Stderr
	return cli.Run(c)
}

// prove runs the jobs and writes the files.
func (o proveOptions) prove(ctx context.Context, oneNode bool, own []check.Result, words io.Writer) (prove.Proof, error) {
	p, err := o.prover(oneNode, own, words)
	if err != nil {
		return prove.Proof{}, err
	}
	evidence, err := p.Prove(ctx)
	if err != nil {
		return prove.Proof{}, err
	}
	proof := evidence.Judge()
	proof.Date, proof.SlurmV, proof.Slurm = time.Now().Format(time.DateOnly), config.Version, p.Client.Version(ctx)
	names, err := prove.SiteNames(ctx, p.Client, evidence.Request.On)
	if err != nil {
		fmt.Fprintf(words, "slurmv: %v; look for such names in the results before you send them\n", err)
	}
	return proof, proof.Hide(names).WriteFiles(o.out)
}

func (o proveOptions) prover(oneNode bool, own []check.Result, words io.Writer) (*prove.Prover, error) {
	cfg, err := config.Load(o.config)
	if err != nil {
		return nil, err
	}
	dir, err := prove.NewDirectory(o.out)
	if err != nil {
		return nil, fmt.Errorf("--out: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	o.Programs = prove.Programs{Slurmv: self, Run: filepath.Join(filepath.Dir(self), "slurm-v-run"), Workload: filepath.Join(config.Libexec, "slurmv-workload")}
	return &prove.Prover{
		Request: o.Request, OneNode: oneNode, Config: cfg, Client: slurm.User(os.Environ()), Dir: filepath.Join(dir, prove.JobsDir),
		UID: os.Getuid(), Own: own, Wait: o.wait, Interval: time.Second, Words: words,
	}, nil
}
