// Package slurm contains everything that Slurm-V knows of Slurm's commands: how to run
// them, the formats of their output, their options, and the variables that they set and
// read.
//
// A [Client] runs the commands. Root's client runs them by their absolute paths and
// passes on nothing of the user's environment; the user's ([User]) finds them by PATH. A
// client returns parsed values; no other package parses Slurm's texts.
//
// Users can write into some of these texts, for instance the job's name. So root either
// reads only fields that no user can write, or accepts what it looks for only if the text
// contains it exactly once.
//
// sbatch, salloc and srun have one [Grammar] of options. A [Submission] says how a job
// was submitted, as far as command line, batch script and environment tell.
package slurm
