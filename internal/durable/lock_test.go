package durable_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/durable"
)

const holderEnv = "DURABLE_LOCK"

// TestMain can also run as a process that takes a lock, says so, and waits to be killed.
func TestMain(m *testing.M) {
	path := os.Getenv(holderEnv)
	if path == "" {
		os.Exit(m.Run())
	}
	if _, err := durable.TryLock(path, 0); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("locked")
	time.Sleep(time.Hour)
}

func TestALockEndsWithItsProcess(t *testing.T) {
	path := t.TempDir()
	holder := exec.Command("/proc/self/exe")
	holder.Env = append(os.Environ(), holderEnv+"="+path)
	out, err := holder.StdoutPipe()
	noError(t, errors.Join(err, holder.Start()))
	var word string
	if _, err := fmt.Fscanln(out, &word); err != nil || word != "locked" {
		t.Fatalf("the other process says %q, error %v", word, err)
	}
	if _, err := durable.TryLock(path, 0); !errors.Is(err, durable.ErrLocked) {
		t.Errorf("error = %v", err)
	}
	noError(t, holder.Process.Signal(unix.SIGKILL))
	_ = holder.Wait()
	lock, err := durable.Lock(t.Context(), path, 0)
	noError(t, err)
	noError(t, lock.Close())
}

func TestALockIsMadeOnlyIfItMayBe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if _, err := durable.TryLock(path, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error = %v", err)
	}
	lock, err := durable.TryLock(path, os.O_CREATE)
	noError(t, err)
	noError(t, lock.Close())
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, error %v", info, err)
	}
	link := path + "-link"
	noError(t, os.Symlink(path, link))
	if _, err := durable.TryLock(link, os.O_CREATE); !errors.Is(err, unix.ELOOP) {
		t.Errorf("lock on a link: error = %v", err)
	}
}

func TestOneAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var all sync.WaitGroup
	var inside atomic.Int32
	for range 20 {
		all.Go(func() {
			for range 20 {
				lock, err := durable.Lock(t.Context(), path, os.O_CREATE)
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d have the lock", n)
				}
				inside.Add(-1)
				noError(t, lock.Close())
			}
		})
	}
	all.Wait()
}

func TestWhoGivesUpDoesNotGetTheLockLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := durable.TryLock(path, os.O_CREATE)
	noError(t, err)
	why := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, why)
	defer cancel()
	_, err = durable.Lock(ctx, path, os.O_CREATE)
	if !errors.Is(err, why) || !errors.Is(err, durable.ErrLocked) || !strings.Contains(err.Error(), path) {
		t.Errorf("error = %v", err)
	}
	noError(t, first.Close())
	second, err := durable.Lock(t.Context(), path, os.O_CREATE)
	noError(t, err)
	noError(t, second.Close())
}

// If a file is replaced while a process waits for its lock, the process gets the lock on
// the file that has the name then.
func TestTheLockIsOnTheFileThatHasTheName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	noError(t, durable.WriteFile(path, []byte("old")))
	first, err := durable.TryLock(path, 0)
	noError(t, err)
	got := make(chan *durable.Held)
	go func() {
		lock, err := durable.Lock(t.Context(), path, 0)
		if err != nil {
			t.Error(err)
		}
		got <- lock
	}()
	time.Sleep(10 * time.Millisecond) // usually lets the goroutine begin to wait in the kernel, which the test does not need
	noError(t, durable.WriteFile(path, []byte("new")))
	noError(t, first.Close())
	second := <-got
	if _, err := durable.TryLock(path, 0); !errors.Is(err, durable.ErrLocked) {
		t.Errorf("error = %v", err)
	}
	noError(t, second.Close())
}
