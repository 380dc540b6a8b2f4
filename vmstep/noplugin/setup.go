package noplugin

import (
	"fmt"
	"strings"

	"github.com/slurm-v/slurm-v/internal/program"
	"github.com/slurm-v/slurm-v/vmstep"
)

// Setup says, in a help text, what the administrator sets on every node.
func Setup() string {
	return `The agent needs root's rights. The administrator gives them with these lines in the
sudoers file of every node:

    ` + SecurePathLine() + `
    ` + SudoersLine() + `

The agent takes the user from sudo, the job from the caller's cgroup, which Slurm
sets, and the job's CPUs and memory from slurmctld. So it starts nothing beyond what
the caller's own job has. squeue and scontrol must work for root there.

When a job is killed, its last processes may have no time to clean up. The
administrator makes this script on every node, executable,

    ` + strings.Join(EpilogScript(), "\n    ") + `

and sets it in slurm.conf:

    Epilog=` + EpilogPath + `

Without it, network devices and files of such a job stay until slurmv clean runs on
the node.`
}

// SudoersLine lets every user start the agent for their own jobs.
func SudoersLine() string {
	return fmt.Sprintf("ALL ALL=(root) NOPASSWD: %[1]s launch --task, %[1]s reclaim --task", vmstep.AgentPath())
}

// SecurePathLine makes sudo run root's programs with a safe PATH instead of the caller's,
// if sudo does not do so already. The setting belongs to a command, and sudoers wants the
// command without arguments here.
func SecurePathLine() string {
	return fmt.Sprintf(`Defaults!%s secure_path="%s"`, vmstep.AgentPath(), program.Path)
}

// EpilogScript has the lines of a script that gives back what a job has left on a node where
// Slurm does not call the plugin's epilog. Epilog= of slurm.conf takes the path of a program,
// without arguments. A job with tags on the fabric has SPANK_SLURMV_FABRIC in its epilog's
// environment: the node confirms their release, even if no task of the job ran there.
func EpilogScript() []string {
	return []string{
		"#!/bin/sh",
		"# " + EpilogPath,
		"exec " + vmstep.AgentPath() + ` reclaim --job "$SLURM_JOB_ID" --node "$SLURMD_NODENAME" --deadline 2m --last ${SPANK_SLURMV_FABRIC:+--fabric}`,
	}
}

// EpilogPath is where the administrator is told to put EpilogScript.
const EpilogPath = "/etc/slurm/slurmv-epilog.sh"
