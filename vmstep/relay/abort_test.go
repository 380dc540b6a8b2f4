package relay

import (
	"bytes"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/pmi"
)

// What slurmstepd gets from a task, in its order.
type received struct {
	mu   sync.Mutex
	what []string
}

func (r *received) add(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.what = append(r.what, what)
}

// Write takes what the task says to Slurm's PMI server, up to an abort.
func (r *received) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("cmd=abort")) {
		r.add(strings.TrimSpace(string(p)))
		return len(p), io.EOF
	}
	return len(p), nil
}

// read reads a task's words, but slowly.
func (r *received) read(pipe io.Reader) {
	buf := make([]byte, 100)
	for {
		time.Sleep(100 * time.Millisecond)
		n, err := pipe.Read(buf)
		if err != nil {
			return
		}
		r.add(strings.TrimSpace(string(buf[:n])))
	}
}

// Slurm 24.11 kills a task as soon as it hears of an abort, so what the program and Slurm-V say must have been read before.
func TestAnAbortComesAfterTheLastWords(t *testing.T) {
	tests := map[string]struct {
		script string
		exit   guest.Exit
		want   []string
	}{
		"the program aborts": {init1 + `printf 'cmd=abort exitcode=7\n' >&$PMI_FD; sleep 0.2; echo sorry >&2; exit 7`,
			guest.Exit{Code: 7}, []string{"sorry", "cmd=abort exitcode=7"}},
		"it ends without MPI_Finalize": {init1 + "exit 0",
			guest.Exit{Code: 1}, []string{"slurm-v: the program has ended without MPI_Finalize, and the other ranks may wait for it", "cmd=abort exitcode=1"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got received
			exit := abortingTask(t, &got, tt.script, 0)
			if diff := cmp.Diff(tt.want, got.what); diff != "" || exit != tt.exit {
				t.Errorf("exit = %v, want %v; slurmstepd gets (-want +got):\n%s", exit, tt.exit, diff)
			}
		})
	}
}

// A program that does not end must not keep the run alive.
func TestAnAbortDoesNotWaitForEver(t *testing.T) {
	var got received
	script := init1 + `printf 'cmd=abort exitcode=7\n' >&$PMI_FD; read -t 20 -r answer <&$PMI_FD; [ $? -lt 128 ] || echo waited >&2; exit 7`
	abortingTask(t, &got, script, time.Millisecond) // PMI ends with the abort, and the program with PMI
	if diff := cmp.Diff([]string{"cmd=abort exitcode=7"}, got.what); diff != "" {
		t.Errorf("slurmstepd gets (-want +got):\n%s", diff)
	}
}

// abortingTask runs a task whose words and messages slurmstepd gets, to its end.
func abortingTask(t *testing.T, got *received, script string, patience time.Duration) guest.Exit {
	t.Helper()
	server, ours := wire(t)
	pipe, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	readers.Go(func() { got.read(pipe) })
	readers.Go(func() {
		hearPMI(server, got)
		server.Close()
	})
	task := &Task{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: stderr, PMI: ours, Rank: pmi.Layout{Ranks: 2, VMsPerNode: 1}, abortPatience: patience}
	exit, err := task.Run(newVM(t).start(t, script, true))
	if err != nil {
		t.Fatal(err)
	}
	task.Leave(exit)
	stderr.Close()
	readers.Wait()
	return exit
}
