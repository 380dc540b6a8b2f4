package pmi

import "sync"

// A Membership is whether a relay's program is a rank of its run. It becomes one when it says init to Slurm's PMI
// server, or when it has connected to the PMIx server in its VM, and is none any more when it has finalized. If it ends
// in between, the other ranks may wait for it for ever: Slurm's mpi/pmi2 does nothing when a task ends.
type Membership struct {
	mu      sync.Mutex
	dialect dialect
	joined  bool
	within  bool
}

// Joined reports whether the program has become a rank.
func (m *Membership) Joined() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.joined
}

// Within reports whether the program has become a rank and has not finalized.
func (m *Membership) Within() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.within
}

// Abort returns the message by which the rank makes Slurm end the run: SIGTERM for all tasks, and SIGKILL after
// KillWait. Slurm obeys PMI-2's only if it is said to be about the world.
func (m *Membership) Abort() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dialect == pmi2 {
		return frame(pmi2, "cmd=abort;isworld=TRUE;msg=a rank has ended without MPI_Finalize;")
	}
	return []byte("cmd=abort exitcode=1\n")
}

func (m *Membership) join(d dialect) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dialect, m.joined, m.within = d, true, true
}

func (m *Membership) leave() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.within = false
}
