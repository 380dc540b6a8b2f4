package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/slurm-v/slurm-v/internal/filetest"
)

func TestFilesOfKilledRanks(t *testing.T) {
	me := uint32(os.Getuid())
	process := func(state string, uid uint32) string {
		return fmt.Sprintf("Name:\tworld\nState:\t%s\nUid:\t%d\t%d\t%d\t%d\n", state, uid, uid, uid, uid)
	}
	tests := map[string]struct {
		file      string
		uid       uint32
		processes []string // their /proc/PID/status
		stays     bool
	}{
		"Open MPI 4's":              {file: "vader_segment.vm0.1000.1", uid: me},
		"Open MPI 5's":              {file: "sm_segment.vm0.1000.1.0", uid: me},
		"MPICH's":                   {file: "mpich_shar_tmpab12cd", uid: me},
		"UCX's":                     {file: "ucx_shm_posix_1a2b", uid: me},
		"beside others' processes":  {file: "vader_segment.x", uid: me, processes: []string{process("R (running)", me+1)}},
		"of a process that is dead": {file: "vader_segment.x", uid: me, processes: []string{process("Z (zombie)", me)}},
		"of a process that runs":    {file: "vader_segment.x", uid: me, processes: []string{process("S (sleeping)", me+1), process("S (sleeping)", me)}, stays: true},
		"of another user":           {file: "vader_segment.x", uid: me + 1, stays: true},
		"of no MPI library":         {file: "results", uid: me, stays: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := shmFiles{dir: t.TempDir(), proc: t.TempDir()}
			file := filepath.Join(s.dir, tt.file)
			filetest.Write(t, file, "segment")
			for i, status := range tt.processes {
				filetest.Write(t, filepath.Join(s.proc, fmt.Sprint(100+i), "status"), status)
			}
			s.sweep(tt.uid)
			if _, err := os.Lstat(file); (err == nil) != tt.stays {
				t.Errorf("it is there: %v, want %v", err == nil, tt.stays)
			}
		})
	}
}

// A user's last program is that after which files can be nobody's.
func TestTheLastProgramOfAUser(t *testing.T) {
	s := &Server{}
	one, two, other := &program{cmd: &Command{UID: 1000}}, &program{cmd: &Command{UID: 1000}}, &program{cmd: &Command{UID: 1001}}
	for _, p := range []*program{one, two, other} {
		if err := s.register(p); err != nil {
			t.Fatal(err)
		}
	}
	if s.forget(one) {
		t.Error("another program of the user runs")
	}
	if !s.forget(two) {
		t.Error("no program of the user runs any more")
	}
}
