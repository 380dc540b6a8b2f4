package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/internal/imagecheck"
	"github.com/slurm-v/slurm-v/internal/jobvms"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmstep"
)

// passedOptions are the options of sbatch that image check passes on.
var passedOptions = []string{"vm-firmware", "vcpu-per-vm", "memory-per-vm", "disk-size", "vm-network", "vm-ready-timeout"}

func newImageCheck() *cobra.Command {
	var output string
	values := map[string]*string{}
	c := &cobra.Command{
		Use:   "check [flags] FILE|NAME",
		Short: "Boot an image once, and say what it has",
		Long: `Boot one VM from an image, in a job of your own, and say what a job finds there: the firmware
that boots it, how long that took, system and kernel, how the guest agent got in, cloud-init, the
file systems by which it can have directories of the node, the MPI libraries that are in PATH, and
the libraries by which MPI asks for the other ranks: libpmi and libpmi2 are Slurm's, which Intel MPI
and MVAPICH may need; libpmix is what Open MPI needs with slurm-v-run --mpi=pmix.
If the VM does not come up, slurmv says why, as in any job.

FILE and NAME are as for --vm-image of sbatch. The job is one of salloc's: SALLOC_PARTITION and
the like choose where it runs. Inside a job with VM options name no image: the job's is checked.

With --output json it prints an object with the keys image, firmware, ready_seconds, os, kernel,
agent, agent_from ("cloud-init" or "image"), agent_version, cloud_init, file_systems, mpi, pmi and
pmi_libraries.

EXIT STATUS
===========

    0   the VM came up, and what it has is printed
    1   it did not, or no job could be started
    2   the command line cannot be run`,
		Example: `  slurmv image check ./mine.qcow2
  slurmv image check debian12-mpi --memory-per-vm 2G`,
		Args: cli.AtMostOne(),
		RunE: func(c *cobra.Command, args []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			inJob := os.Getenv(slurm.EnvJobID) != ""
			switch {
			case inJob && len(args) > 0:
				return cli.Usagef("inside a job slurmv image check takes no image: it checks the job's own")
			case inJob:
				return checkInJob(c, output)
			case len(args) == 0:
				return cli.Usagef("name an image: a file, or a name that slurmv image list shows")
			}
			return submitCheck(c, args[0], output, given(c, values))
		},
	}
	for _, o := range jobspec.Options {
		if slices.Contains(passedOptions, o.Name) {
			values[o.Name] = c.Flags().String(o.Name, "", "as in sbatch; outside of jobs only")
		}
	}
	cli.AddOutput(c, &output)
	return c
}

// submitCheck runs this command in a job with one VM.
func submitCheck(c *cobra.Command, image, output string, values map[string]string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"--quiet", "--job-name=image-check", "--nodes=1", "--ntasks=1", "--vm-per-node=1", "--vm-start=cold", "--vm-image=" + image}
	for _, name := range passedOptions {
		if value, given := values[name]; given {
			args = append(args, "--"+name+"="+value)
		}
	}
	job := exec.CommandContext(c.Context(), "salloc", append(args, self, "image", "check", "--output="+output)...)
	job.Stdin, job.Stdout, job.Stderr = c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr()
	return cli.Run(job)
}

func checkInJob(c *cobra.Command, output string) error {
	spec, err := jobspec.Decode(os.Getenv(vmstep.SpecVariable))
	if err != nil {
		return fmt.Errorf("this job has no VMs: submit it with --vm-per-node=1 and --vm-image (%w)", err)
	}
	var facts bytes.Buffer
	run := exec.CommandContext(c.Context(), "slurm-v-run", "--nodes=1", "--ntasks=1", "sh", "-c", imagecheck.Script())
	run.Stdout, run.Stderr = &facts, c.ErrOrStderr()
	if err := cli.Run(run); err != nil {
		return err
	}
	nodes, err := jobvms.AskNamed(c.Context(), slurm.ThisJob(os.Getenv))
	if err != nil {
		return err
	}
	image := imagecheck.Read(facts.String(), nodes)
	image.Image = spec.Image
	if output == "json" {
		return cli.PrintJSON(c.OutOrStdout(), image)
	}
	return image.WriteText(c.OutOrStdout())
}
