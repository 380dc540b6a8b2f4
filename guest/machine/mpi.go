package machine

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mpiLibraryDir is the directory of the library, and mpiLibrary is vmstep.MPILibrary.
const (
	mpiLibraryDir = "run/slurm-v/lib"
	mpiLibrary    = mpiLibraryDir + "/libslurmv-mpi.so"
)

// offerMPILibrary puts the library into the VM that gives MPI the memory of a device. Images
// mount /run without the right to run anything in it, so its directory is a file system of its
// own. Programs of the job's owner load it, so nobody but root may write there.
func (s ivshmemDevices) offerMPILibrary(library []byte) error {
	dir, file := s.path(mpiLibraryDir), s.path(mpiLibrary)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if _, err := os.Stat(file); err == nil {
		return nil // the setup is repeated
	}
	if err := s.doMount("slurm-v", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=4m"); err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	return os.WriteFile(file, library, 0o755)
}
