package machine

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/guest"
)

// mpiFiles puts the files that MPI programs need into the VM. Images mount /run without the right
// to run anything in it, so their directory is a file system of its own. Programs of the job's
// owner load them, so nobody but root may write there.
func (s *system) mpiFiles(files []guest.MPIFile) error {
	if len(files) == 0 {
		return nil
	}
	dir := s.path(guest.MPIDir)
	if err := s.mountMPIDir(dir); err != nil {
		return err
	}
	for _, f := range files {
		file := filepath.Join(dir, filepath.Base(f.Name))
		if _, err := os.Stat(file); err == nil {
			continue // the setup is repeated
		}
		if err := os.WriteFile(file, f.Content, 0o755); err != nil {
			return fmt.Errorf("file for MPI: %w", err)
		}
	}
	return nil
}

func (s *system) mountMPIDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := s.doMount("slurm-v", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=4m"); err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	return nil
}
