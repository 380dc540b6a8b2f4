// Package slurm is all that Slurm-V knows of Slurm's commands: how they are run, what
// their texts say, which options they take, and the variables that they set and read.
//
// A [Client] asks. There are two of them: root's, which runs Slurm's commands by their
// absolute paths and tells them nothing of the user's environment, and the user's
// ([User]), which finds them by PATH. What a client returns is parsed already; no other
// package reads texts of Slurm's.
//
// Some of these texts have words of the user's in them, such as a job's name. So root
// reads only fields that no user can write, or takes what it looks for only if it is
// there exactly once.
//
// sbatch, salloc and srun have one [Grammar] of options, and [Submission] is how a job was
// submitted as far as command line, batch script and environment tell.
package slurm
