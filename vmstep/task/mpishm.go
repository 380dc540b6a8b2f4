package task

import (
	"fmt"
	"os"
	"slices"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmstep"
	"github.com/slurm-v/slurm-v/vmstep/relay"
)

// shareMemory gives the program's MPI the memory of the run's device, if it can. All tasks of a
// run come to the same result, since MPI must see the same neighbours everywhere.
func (e Exec) shareMemory(r *relay.Task, c *guest.Command, reply nodeagent.Reply) error {
	memory, err := e.mpiMemory(reply, r.PMI != nil)
	if err != nil || memory == nil {
		return err
	}
	here, err := slurm.TaskOf(os.Getenv)
	if err != nil {
		return err
	}
	r.Shared = &relay.SharedMemory{
		Node: reply.Node.Node, VMs: min(len(reply.Node.VMs), here.LocalTasks), Refuse: memory.Check(),
		Speaks: here.LocalID == 0 && here.LocalTasks > 1, Quiet: e.Quiet,
	}
	r.Shared.PMI.Must = e.MPIShared == vmstep.MPISharedOn
	if r.Shared.Refuse == nil {
		c.Env = append(c.Env, memory.Env(c.Env)...)
	}
	return nil
}

// mpiMemory returns the memory of the run's device, or nil if its ranks have nobody to share it
// with.
func (e Exec) mpiMemory(reply nodeagent.Reply, withPMI bool) (*vmstep.MPIMemory, error) {
	if e.MPIShared == vmstep.MPISharedOff || e.Claim == "" || !withPMI {
		return nil, nil
	}
	memory, err := e.memoryOf(reply)
	if err != nil {
		return nil, err
	}
	if memory.Ranks < 2 || len(reply.Node.VMs) < 2 {
		return nil, nil
	}
	if err := memory.Check(); err != nil && e.MPIShared == vmstep.MPISharedOn {
		return nil, fmt.Errorf("--mpi-shm=on: %w", err)
	}
	return &memory, nil
}

func (e Exec) memoryOf(reply nodeagent.Reply) (vmstep.MPIMemory, error) {
	claim, err := nodeagent.ParseClaim(e.Claim)
	if err != nil {
		return vmstep.MPIMemory{}, err
	}
	ranks, err := slurm.MostTasksOnNode(os.Getenv)
	if err != nil {
		return vmstep.MPIMemory{}, err
	}
	var neighbours []int
	if e.PMIx {
		neighbours, err = slurm.RanksHere(os.Getenv)
		slices.Sort(neighbours)
	}
	return vmstep.MPIMemory{
		Job:   fmt.Sprint(os.Getenv(slurm.EnvJobID), reply.Node.Node, e.Claim),
		Claim: claim.Device,
		Size:  reply.IVShmemSize,
		Ranks: ranks,
		VM:    reply.VM.Number,

		Neighbours: neighbours,
	}, err
}
