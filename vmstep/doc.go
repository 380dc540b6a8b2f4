// Package vmstep runs the Slurm step in which the VMs of a job live, and the
// steps whose programs run in those VMs.
//
// A [Keeper], one process per job, owns the VM step's srun. Slurm's own standard
// streams are the only channel between it and the nodes: messages travel as
// lines that nothing else prints (see [WriteFrame] and [Frames]). Every node says
// which VMs it has; the keeper joins them ([Assembly]) and sends the map back.
// Any number of clients ([Watch]) follow over a unix socket and may come, go and
// be killed without harm to the VMs.
//
// In a job with IVShmem devices each run claims one by a step of its own
// ([ClaimCommand], [AwaitClaim]).
//
// The rest is pure: which words of a command line are srun's options
// ([Split]), what the step's environment keeps ([StepEnv], [ProgramEnv]), what is
// shown while the VMs start ([Display]), and why a step ended ([Cause]).
package vmstep
