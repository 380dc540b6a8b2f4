//go:build cluster

package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A stallWatch notices what makes every limit too short: a disk that stands still, and
// threads of VMs that get no CPU. A failure prints what was noticed.
type stallWatch struct {
	mu      sync.Mutex
	noticed []string
	waited  map[string]time.Duration // how long each thread of a VM has waited for a CPU in its life
}

// lookEvery is how often the watch looks, and tolerable is how long a stall lasts before
// the watch notes it.
const (
	lookEvery = 10 * time.Second
	tolerable = 9 * time.Second
)

var stalls = stallWatch{waited: map[string]time.Duration{}}

func (w *stallWatch) follow() {
	for range time.Tick(lookEvery) {
		w.lookAtDisk()
		w.lookAtVMs()
	}
}

func (w *stallWatch) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noticed = append(w.noticed, time.Now().UTC().Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

func (w *stallWatch) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.noticed) == 0 {
		return "the disk and the VMs' threads never stood still for " + tolerable.String()
	}
	return strings.Join(w.noticed, "\n")
}

// lookAtDisk writes a few bytes where the cluster's files are.
func (w *stallWatch) lookAtDisk() {
	path := filepath.Join(clusterDir(), "stalls")
	began := time.Now()
	file, err := os.Create(path)
	if err != nil {
		return
	}
	_, _ = file.WriteString(began.String())
	_ = file.Sync()
	_ = file.Close()
	_ = os.Remove(path)
	if took := time.Since(began); took > tolerable {
		w.note("the disk took %v to write a few bytes", took.Round(time.Second))
	}
}

// lookAtVMs notes the threads of QEMU that have waited for a CPU since the last look and
// did nothing else.
func (w *stallWatch) lookAtVMs() {
	threads, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*/comm")
	waited, starved := map[string]time.Duration{}, 0
	for _, comm := range threads {
		if name, _ := os.ReadFile(comm); !strings.HasPrefix(string(name), "CPU ") {
			continue
		}
		thread := filepath.Dir(comm)
		waited[thread] = waitedForCPU(thread)
		if before, known := w.waited[thread]; known && waited[thread]-before > tolerable {
			starved++
		}
	}
	if starved > 0 {
		w.note("%d of %d vCPUs got no CPU for %v", starved, len(waited), lookEvery)
	}
	w.waited = waited
}

// waitedForCPU is the second number of proc(5)'s schedstat.
func waitedForCPU(thread string) time.Duration {
	text, _ := os.ReadFile(filepath.Join(thread, "schedstat"))
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	ns, _ := strconv.ParseInt(fields[1], 10, 64)
	return time.Duration(ns)
}
