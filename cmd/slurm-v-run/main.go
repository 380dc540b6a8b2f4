// Command slurm-v-run runs a program in the VMs of a Slurm job, as srun runs it
// on the bare nodes.
//
// It makes the job's keeper start the VMs, if they are not there, shows their progress, and
// then becomes srun: exit status, signals and terminal are srun's own.
package main

import (
	"fmt"
	"os"

	"github.com/slurm-v/slurm-v/vmstep/wrapper"
)

func main() {
	if err := wrapper.Act(os.Args[1:], help); err != nil {
		fmt.Fprintln(os.Stderr, "slurm-v-run:", err)
		os.Exit(wrapper.ExitStatus(err))
	}
}
