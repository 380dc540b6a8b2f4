package relay

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
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

// read reads a task's words, but slowly. What it has read is in its place before anybody sees the pipe empty and adds more.
func (r *received) read(pipe *os.File) {
	for {
		time.Sleep(100 * time.Millisecond)
		if !r.readWords(pipe) {
			return
		}
	}
}

// readWords reads what is in the pipe; false at its end.
func (r *received) readWords(pipe *os.File) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = pipe.SetReadDeadline(time.Now().Add(time.Millisecond))
	buf := make([]byte, 100)
	n, err := pipe.Read(buf)
	if n > 0 {
		r.what = append(r.what, strings.TrimSpace(string(buf[:n])))
	}
	return err == nil || errors.Is(err, os.ErrDeadlineExceeded)
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

// A rank waits in its first barrier for a task that has ended without MPI_Init, and Slurm does not end it.
func TestARankDoesNotWaitForATaskThatHasEnded(t *testing.T) {
	const waits = init1 + `printf 'cmd=barrier_in\n' >&$PMI_FD; read -t 20 -r answer <&$PMI_FD`
	const sentence = "slurm-v: task 1 on n2 has ended without MPI_Init, and the other tasks would wait for it there for ever. The run ends.\n"
	for name, spares := range map[string]bool{"the run ends": false, "the user spares the others": true} {
		t.Run(name, func(t *testing.T) {
			server, ours := wire(t)
			stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
			if err != nil {
				t.Fatal(err)
			}
			defer stderr.Close()
			task := &Task{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: stderr, PMI: ours, SparesRanks: spares,
				Rank: pmi.Layout{Ranks: 2, VMsPerNode: 1, Absence: &pmi.Absence{Wait: time.Millisecond}}}
			ends := &abortEnds{process: newVM(t).start(t, waits, true)}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				hearPMI(server, ends)
			}()
			if spares {
				time.AfterFunc(300*time.Millisecond, ends.kill)
			}
			exit, err := task.Run(ends.process)
			if err != nil || exit.Signal != int(syscall.SIGKILL) {
				t.Errorf("the rank ends with %v, %v", exit, err)
			}
			task.Leave(exit)
			<-ended
			want, asks := sentence, "cmd=lookup_name service=slurmv-absent\ncmd=abort exitcode=1\n"
			if spares {
				want, asks = "", "cmd=barrier_in\n"
			}
			says, err := os.ReadFile(stderr.Name())
			if err != nil || string(says) != want || !strings.HasSuffix(ends.heard.String(), asks) {
				t.Errorf("it says %q, %v, and slurmstepd hears %q; want %q and %q", says, err, ends.heard.String(), want, asks)
			}
		})
	}
}

// abortEnds is what slurmstepd hears, and ends the program when it hears of an abort.
type abortEnds struct {
	process *guest.Process
	heard   bytes.Buffer
}

func (a *abortEnds) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("cmd=abort")) {
		a.kill()
	}
	return a.heard.Write(p)
}

func (a *abortEnds) kill() { _ = a.process.Signal(syscall.SIGKILL) }
