package pmi

import (
	"errors"
	"slices"
	"strings"
	"sync"
)

// ErrNotShared ends the conversation with a program that may not start MPI without the memory, and has no access to it.
var ErrNotShared = errors.New("relay PMI: the program cannot use the memory that the VMs share")

// A Shared is memory that the VMs of a node share. MPI sees the ranks of the node as neighbours
// if the library of ivshmem/mpi is in this rank's process. The library says so before the rank's
// first message, and later which transport has met a rank of another VM. Its messages begin
// with cmd=slurmv-shm, go no further than the relay, and have no answer.
type Shared struct {
	// Met is called with each transport that has met a rank of another VM, such as UCX.
	Met func(transport string)
	// Must says that MPI may not start without the library.
	Must bool

	mu      sync.Mutex
	ready   bool
	refused bool
	met     []string
}

const sharedCommand = "slurmv-shm"

// Ready reports whether the library is in the rank's process.
func (s *Shared) Ready() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready
}

// admit reports whether the program may start MPI.
func (s *Shared) admit() bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = s.Must && !s.ready
	return !s.refused
}

// Refused reports whether the program was kept from starting MPI, because the library is not in its process.
func (s *Shared) Refused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// Transports are those that have met a rank of another VM.
func (s *Shared) Transports() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.met)
}

// hear takes a message of the library.
func (s *Shared) hear(d dialect, msg []byte) {
	if s == nil {
		return
	}
	s.mu.Lock()
	if _, ready := field(d, msg, "ready"); ready {
		s.ready = true
	}
	peer, met := field(d, msg, "peer")
	peer = strings.ReplaceAll(peer, "_", " ")
	met = met && !slices.Contains(s.met, peer) && len(s.met) < 8
	if met {
		s.met = append(s.met, peer)
	}
	s.mu.Unlock()
	if met && s.Met != nil {
		s.Met(peer)
	}
}
