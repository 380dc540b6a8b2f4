package serve

import (
	"testing"

	"github.com/slurm-v/slurm-v/internal/sshkey"
)

func TestTheFirstHostKeyStays(t *testing.T) {
	s := &Server{}
	first, second := sshkey.Pair{Public: "a", Private: "A"}, sshkey.Pair{Public: "b", Private: "B"}
	for _, offered := range []sshkey.Pair{first, second, first} {
		if got := s.hostKey(offered); got != first {
			t.Errorf("offered %v: host key = %v, want %v", offered, got, first)
		}
	}
}
