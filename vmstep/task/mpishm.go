package task

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmstep"
	"github.com/slurm-v/slurm-v/vmstep/relay"
)

// giveMemory gives the program the run's device, as far as its MPI does not get it.
func (e Exec) giveMemory(r *relay.Task, c *guest.Command, reply nodeagent.Reply) error {
	own, err := e.shareMemory(r, c, reply)
	if err != nil {
		return err
	}
	c.Env = append(c.Env, e.deviceEnv(own)...)
	return nil
}

// shareMemory gives the program's MPI the memory of the run's device, if it can, and returns how many bytes of the
// device are left for the program itself. All tasks of a run come to the same result, since MPI must see the same
// neighbours everywhere.
func (e Exec) shareMemory(r *relay.Task, c *guest.Command, reply nodeagent.Reply) (own int64, err error) {
	memory, refuse, err := e.mpiMemory(reply, r.PMI != nil, c.Env)
	if err != nil || memory == nil {
		return reply.IVShmemSize, err
	}
	here, err := slurm.TaskOf(os.Getenv)
	if err != nil {
		return 0, err
	}
	r.Shared = &relay.SharedMemory{
		Node: reply.Node.Node, VMs: min(len(reply.Node.VMs), here.LocalTasks), Refuse: refuse,
		Speaks: here.LocalID == 0 && here.LocalTasks > 1, Quiet: e.Quiet,
	}
	r.Shared.PMI.Must = e.MPIShared == vmstep.MPISharedOn
	if refuse != nil {
		return reply.IVShmemSize, nil
	}
	c.Env = append(c.Env, memory.Env(c.Env)...)
	return memory.ForPrograms(), nil
}

// mpiMemory returns the memory of the run's device and why MPI cannot have it, or no memory if its ranks have nobody to
// share it with.
func (e Exec) mpiMemory(reply nodeagent.Reply, withPMI bool, env []string) (memory *vmstep.MPIMemory, refuse, err error) {
	if e.MPIShared == vmstep.MPISharedOff || e.Claim == "" || !withPMI {
		return nil, nil, nil
	}
	m, err := e.memoryOf(reply)
	if err != nil {
		return nil, nil, err
	}
	refuse = cmp.Or(nobodyToShareWith(m.Ranks, len(reply.Node.VMs)), m.Check(env))
	if refuse != nil && e.MPIShared == vmstep.MPISharedOn {
		return nil, nil, fmt.Errorf("--mpi-shm=on: %w", refuse)
	}
	if errors.Is(refuse, errNobody) {
		return nil, nil, nil
	}
	return &m, refuse, nil
}

// errNobody matches the errors that say why ranks have nobody to share memory with.
var errNobody = errors.New("there is nothing to share between VMs")

// nobodyToShareWith says why no rank of a run has a neighbour in another VM; nil if one may have.
func nobodyToShareWith(ranksOnANode, vmsOnANode int) error {
	switch {
	case vmsOnANode < 2:
		return fmt.Errorf("%w: each node of this job has one VM. Submit it with --vm-per-node=2 or more, or leave out --mpi-shm=on", errNobody)
	case ranksOnANode < 2:
		return fmt.Errorf("%w: this run has one rank on each node. Start more, or leave out --mpi-shm=on", errNobody)
	}
	return nil
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
