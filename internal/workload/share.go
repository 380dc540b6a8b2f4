package workload

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/slurm-v/slurm-v/ivshmem/shm"
)

// A Share is what a rank has seen of the memory that its VM shares with others.
type Share struct {
	Size  int   `json:"size"`
	Zero  bool  `json:"zero"`  // it was empty when the run began
	Peers []int `json:"peers"` // the ranks that have it
	Read  []int `json:"read"`  // the ranks whose words were in it
}

// slot is how many bytes of the memory each rank writes.
const slot = 16

// mark makes a rank's word different from any memory that was not written.
const mark = 0x736c75726d2d7600

// Share has every rank write its word into the shared memory, and read those of all ranks.
// It needs no network.
func (r *Rank) Share() (*Share, error) {
	memory, err := shm.Open()
	if err != nil {
		return nil, err
	}
	defer memory.Close()
	bytes := memory.Bytes()
	if len(bytes) < slot*r.Ranks {
		return nil, errors.New("the shared memory has no room for a word of each rank")
	}
	s := &Share{Size: len(bytes), Zero: !slices.ContainsFunc(bytes[:slot*r.Ranks], func(b byte) bool { return b != 0 })}
	if s.Peers, err = shm.Peers(); err != nil {
		return nil, err
	}
	if err := r.Barrier(); err != nil { // all have looked before anybody writes
		return nil, err
	}
	binary.LittleEndian.PutUint64(bytes[slot*r.Number:], mark|uint64(r.Number))
	if err := r.Barrier(); err != nil {
		return nil, err
	}
	for rank := range r.Ranks {
		if binary.LittleEndian.Uint64(bytes[slot*rank:]) == mark|uint64(rank) {
			s.Read = append(s.Read, rank)
		}
	}
	return s, r.Barrier() // the memory stays until all have read
}
