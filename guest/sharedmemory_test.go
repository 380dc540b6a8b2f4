package guest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// UCX gets all networks but lo, which would lead to the own VM only.
func TestUCXDevices(t *testing.T) {
	class := t.TempDir()
	for _, dir := range []string{"net/lo", "net/slurmv-out", "net/eth0", "net/vf0", "infiniband/mlx5_0/ports/1"} {
		if err := os.MkdirAll(filepath.Join(class, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := ucxDevices(class), []string{"eth0", "vf0", "mlx5_0:1"}; !slices.Equal(got, want) {
		t.Errorf("devices = %q, want %q", got, want)
	}
	if got := ucxDevices(t.TempDir()); got != nil {
		t.Errorf("devices of a machine without any = %q", got)
	}
}

func TestSharedMemoryEnvOnlyForItsRuns(t *testing.T) {
	if got := sharedMemoryEnv([]string{"SLURMV_IVSHMEM=/dev/slurmv/ivshmem0"}); got != nil {
		t.Errorf("a program without the memory gets %q", got)
	}
}
