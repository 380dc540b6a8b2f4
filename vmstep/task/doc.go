// Package task has the tasks of a job's steps that talk to the node's agent, as the job's
// user: [Agent.Hold] holds the VM step, [Exec] stands for a program in a VM, [Claimant] holds
// a run's IVShmem device, and [Query] asks the agent.
//
// Slurm starts these tasks; their standard streams and exit status go to srun.
package task
