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

    ` + securePathLine() + `
    ` + sudoersLine() + `

The agent takes the user from sudo, the job from the caller's cgroup, which Slurm
sets, and the job's CPUs and memory from slurmctld. So it starts nothing beyond what
the caller's own job has. squeue and scontrol must work for root there.

When a job is killed, its last processes may have no time to clean up. The
administrator makes this script on every node, executable,

    ` + strings.Join(epilogScript(), "\n    ") + `

and sets it in slurm.conf:

    Epilog=` + epilogPath + `

Without it, network devices and files of such a job stay until slurmv clean runs on
the node.`
}

// sudoersLine lets every user start the agent for their own jobs.
func sudoersLine() string {
	return fmt.Sprintf("ALL ALL=(root) NOPASSWD: %[1]s launch --task, %[1]s reclaim --task", vmstep.AgentPath())
}

// securePathLine makes sudo run root's programs with a safe PATH instead of the caller's,
// if sudo does not do so already. The setting belongs to a command, and sudoers wants the
// command without arguments here.
func securePathLine() string {
	return fmt.Sprintf(`Defaults!%s secure_path="%s"`, vmstep.AgentPath(), program.Path)
}

// epilogScript has the lines of a script that gives back what a job has left on a node where
// Slurm does not call the plugin's epilog. Epilog= of slurm.conf takes the path of a program,
// without arguments. A job with tags on the fabric has SPANK_SLURMV_FABRIC in its epilog's
// environment: the node confirms their release, even if no task of the job ran there.
func epilogScript() []string {
	return []string{
		"#!/bin/sh",
		"# " + epilogPath,
		"exec " + vmstep.AgentPath() + ` reclaim --job "$SLURM_JOB_ID" --node "$SLURMD_NODENAME" --deadline 2m --last ${SPANK_SLURMV_FABRIC:+--fabric}`,
	}
}

// epilogPath is where the administrator is told to put epilogScript.
const epilogPath = "/etc/slurm/slurmv-epilog.sh"
