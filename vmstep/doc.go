// Package vmstep runs the Slurm step in which the VMs of a job live, and the
// steps whose programs run in those VMs.
//
// A [Keeper], one process per job, owns the VM step's srun. Slurm's own standard streams
// are the only channel between the keeper and the nodes: messages travel as lines that no
// other program prints (see [WriteFrame] and [Frames]). Every node sends the list of its
// VMs; the keeper joins the lists ([Assembly]) and sends the map back. Any number of
// clients ([Connect]) follow over a unix socket. They may come, go and be killed without
// harm to the VMs.
//
// In a job with IVShmem devices, each run claims one of them through a step of its own
// ([ClaimCommand], [AwaitClaim]).
//
// The rest is pure: it decides which words of a command line are srun's options ([Split]),
// which variables the step and the programs get ([StepEnv], [ProgramEnv]), what to show
// while the VMs start ([Display]), and why a step ended.
package vmstep
