//go:build sriov

package sriovnode

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/vfpool"
)

// The real kernel makes VFs, changes their number, and binds none of them to a driver.
func TestVFsAreMade(t *testing.T) {
	l := newLab(t)
	l.keeps(t)
	t.Cleanup(func() {
		if err := awaitLinks(); err != nil {
			t.Error(err)
		}
	})
	cfg := l.config()
	create := func(vfs int) string {
		t.Helper()
		cfg.VF.CreatePerPF = map[string]int{"eth1": vfs}
		p, err := vfpool.Open(cfg, "n1")
		if err != nil {
			t.Fatal(err)
		}
		done, err := p.Create(t.Context())
		if err != nil || len(done) != 1 {
			t.Fatal(done, err)
		}
		if done[0].Err != nil {
			return done[0].Err.Error()
		}
		return done[0].Did
	}
	for _, vfs := range []int{3, 5} {
		if got, want := create(vfs), "made "+strconv.Itoa(vfs)+" VFs"; got != want || made(t) != vfs {
			t.Errorf("%s, and the kernel has %d", got, made(t))
		}
		if driver := driverOf(nodesPFs(t)[1].VFs[0]); driver != "." {
			t.Errorf("driver %s has a VF that was made", driver)
		}
	}
	if got := create(8); !strings.Contains(got, "it can have 7 VFs at most") {
		t.Errorf("more VFs than an igb has: %s", got)
	}
	if err := awaitLinks(); err != nil {
		t.Fatal(err)
	}
	job := claim(7, 0, jobspec.VF{PF: "eth1"})
	l.acquire(t, job)
	if got := create(vfsPerPF); !strings.Contains(got, "leased to job 7.0") || made(t) != 5 {
		t.Errorf("while a job has a VF: %s, and the kernel has %d", got, made(t))
	}
	l.release(t, job.Job)
	if got := create(vfsPerPF); got != "made 7 VFs" || made(t) != vfsPerPF {
		t.Errorf("%s, and the kernel has %d", got, made(t))
	}
}

// made is how many VFs eth1 has.
func made(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/sys/class/net/eth1/device/sriov_numvfs")
	if err != nil {
		t.Fatal(err)
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}
