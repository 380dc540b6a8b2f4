package ivshmem

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	if err := Check("n1", 0); err != nil {
		t.Errorf("a job without devices is refused: %v", err)
	}
	if err := Check("n1", 1); err == nil || !strings.HasPrefix(err.Error(), "not available on node n1: shared memory") {
		t.Errorf("error = %v", err)
	}
}
