// Package task is the tasks of a job's steps that speak with the node's agent, as the job's
// user: the one that holds the VM step ([Hold]), the one that stands for a program in a VM
// ([Exec]), the one that holds a run's IVShmem device ([Claimant]), and those that ask ([Query]).
//
// Slurm starts them; their standard streams and exit status go to srun.
package task
