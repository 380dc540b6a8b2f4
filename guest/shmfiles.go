package guest

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// MPI libraries share memory between the ranks of a machine by files in /dev/shm, some MiB each. A rank that is killed
// leaves its file behind, which takes the VM's memory until the job ends. So when a user's last program has ended, the
// guest removes what is left.

// shmFiles is where these files are, and where the kernel lists processes.
type shmFiles struct {
	dir, proc string
	pause     time.Duration // before looking again for processes, which may be about to end
}

var ownShmFiles = shmFiles{dir: "/dev/shm", proc: "/proc", pause: 250 * time.Millisecond}

// shmNames match the files: those of MPICH, UCX, and Open MPI 4 and 5. ivshmem/mpi has the same list.
var shmNames = []string{"mpich_shar_tmp*", "ucx_shm_posix_*", "vader_segment.*", "sm_segment.*", "osc_rdma.*", "osc_sm.*"}

// sweep removes a user's files, unless the user still runs something. The files are listed before the processes: a file
// that was there when the user had no process is nobody's.
func (s shmFiles) sweep(uid uint32) {
	for range 8 {
		left := s.of(uid)
		if len(left) == 0 {
			return
		}
		if !s.runs(uid) {
			for _, file := range left {
				_ = syscall.Unlink(file)
			}
			return
		}
		time.Sleep(s.pause)
	}
}

// of lists a user's files.
func (s shmFiles) of(uid uint32) (left []string) {
	for _, name := range shmNames {
		files, _ := filepath.Glob(filepath.Join(s.dir, name))
		for _, file := range files {
			info, err := os.Lstat(file)
			if err == nil && info.Mode().IsRegular() && info.Sys().(*syscall.Stat_t).Uid == uid {
				left = append(left, file)
			}
		}
	}
	return left
}

// runs reports whether the user has a process.
func (s shmFiles) runs(uid uint32) bool {
	processes, _ := filepath.Glob(filepath.Join(s.proc, "[0-9]*", "status"))
	return slices.ContainsFunc(processes, func(status string) bool {
		text, _ := os.ReadFile(status)
		return isOf(string(text), strconv.FormatUint(uint64(uid), 10))
	})
}

// isOf reports whether a process is a user's, and no zombie. (Its directory in /proc belongs to root if the user may not
// read the program.)
func isOf(status, uid string) bool {
	for line := range strings.Lines(status) {
		switch fields := strings.Fields(line); {
		case len(fields) < 2:
		case fields[0] == "State:" && fields[1] == "Z":
			return false
		case fields[0] == "Uid:":
			return slices.Contains(fields[1:], uid)
		}
	}
	return false
}
