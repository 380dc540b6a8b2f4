package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

// Several processes reserve tags and give them back in one ledger, and are killed at any
// instant. All share a second book in memory of which process has which tag.

const (
	killEnv       = "LEDGER_KILL_DIR"
	killProcesses = 4
	killTags      = 40
)

func TestMain(m *testing.M) {
	dir := os.Getenv(killEnv)
	if dir == "" {
		os.Exit(m.Run())
	}
	number, err := strconv.ParseUint(os.Args[1], 10, 32)
	if err == nil {
		err = (&killed{dir: dir, id: uint32(number)}).run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// openBook returns the memory that the processes share: how many operations there were, and
// for each tag the process that has it, 0 for none.
func openBook(dir string) (operations *atomic.Uint32, owners []atomic.Uint32, err error) {
	const size = 4 * (1 + killTags)
	f, err := os.OpenFile(filepath.Join(dir, "book"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		return nil, nil, err
	}
	memory, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, err
	}
	words := unsafe.Slice((*atomic.Uint32)(unsafe.Pointer(&memory[0])), 1+killTags)
	return &words[0], words[1:], nil
}

// A killed is a process that will be killed. Its jobs have its id as their number.
type killed struct {
	dir    string
	id     uint32
	runs   uint32
	random *rand.Rand
	owners []atomic.Uint32
	mine   []fabric.Reservation
}

func (k *killed) run() error {
	operations, owners, err := openBook(k.dir)
	if err != nil {
		return err
	}
	k.owners, k.random = owners, rand.New(rand.NewPCG(uint64(k.id), 2))
	for operations.Add(1) <= killOperations {
		if k.random.IntN(15) == 0 {
			delay := time.Duration(k.random.IntN(8000)) * time.Microsecond
			time.AfterFunc(delay, func() { unix.Kill(os.Getpid(), unix.SIGKILL) })
		}
		if err := withLedger(filepath.Join(k.dir, "ledger"), k.operation); err != nil {
			return fmt.Errorf("process %d: %w", k.id, err)
		}
	}
	return nil
}

func (k *killed) operation(l *Ledger) error {
	if k.random.IntN(2) == 0 || len(k.mine) == 0 {
		return k.reserve(l)
	}
	r := k.mine[0]
	k.mine = k.mine[1:]
	for _, t := range r.Tags(fabric.VNI) {
		if !k.owners[t].CompareAndSwap(k.id, 0) {
			return fmt.Errorf("tag %d has gone from job %s to process %d", t, r.Job, k.owners[t].Load())
		}
	}
	return finish(l, r.Job)
}

// finish ends a job and confirms for its nodes, in any order.
func finish(l *Ledger, job journal.ID) error {
	now := time.Now()
	if job.Restart%2 == 0 {
		return errors.Join(l.End(job, now), l.Confirm([]Confirmation{{job, "n1"}, {job, "n2"}}, now))
	}
	return errors.Join(
		l.End(job, now), l.Confirm([]Confirmation{{job, "n2"}}, now),
		l.End(job, now), l.Confirm([]Confirmation{{job, "n1"}}, now))
}

func (k *killed) reserve(l *Ledger) error {
	job := journal.ID{Job: k.id, Restart: k.runs}
	r, err := l.Reserve(request(job, Want{Pool: vnis(0, killTags-1), Count: 1 + k.random.IntN(config.MaxVNIs)}), Options{}, time.Now())
	if errors.Is(err, ErrExhausted) {
		return nil
	}
	if err != nil {
		return err
	}
	k.runs++
	for _, t := range r.Tags(fabric.VNI) {
		if !k.owners[t].CompareAndSwap(0, k.id) {
			return fmt.Errorf("job %s gets tag %d, which process %d has", job, t, k.owners[t].Load())
		}
	}
	k.mine = append(k.mine, r)
	return nil
}

// A killer keeps the processes running.
type killer struct {
	t      *testing.T
	dir    string
	last   atomic.Uint32
	kills  atomic.Uint32
	owners []atomic.Uint32
}

func TestProcessesThatAreKilledLeaveTheLedgerWhole(t *testing.T) {
	dir := t.TempDir()
	operations, owners, err := openBook(dir)
	noError(t, err)
	k := &killer{t: t, dir: dir, owners: owners}
	var all sync.WaitGroup
	for range killProcesses {
		all.Go(func() {
			for operations.Load() < killOperations && !t.Failed() {
				k.one()
			}
		})
	}
	all.Wait()
	t.Logf("%d operations, %d processes killed", killOperations, k.kills.Load())
	if k.kills.Load() == 0 {
		t.Error("no process was killed")
	}
	l, err := Open(t.Context(), filepath.Join(dir, "ledger"))
	noError(t, err)
	defer l.Close()
	pools, err := l.Pools([]fabric.Pool{vnis(0, killTags-1)}, 0, time.Now())
	if err != nil || len(pools[0].Taken) > 0 {
		t.Errorf("tags are lost: %+v, error %v", pools, err)
	}
}

// one runs a process until it is killed, and then ends its jobs.
func (k *killer) one() {
	id := k.last.Add(1)
	var stderr bytes.Buffer
	cmd := exec.Command("/proc/self/exe", strconv.Itoa(int(id)))
	cmd.Env, cmd.Stderr = append(os.Environ(), killEnv+"="+k.dir), &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled() {
		k.kills.Add(1)
		err = nil
	}
	if err != nil {
		k.t.Errorf("%v: %s", err, stderr.Bytes())
	}
	if err := withLedger(filepath.Join(k.dir, "ledger"), func(l *Ledger) error { return k.reclaim(l, id) }); err != nil {
		k.t.Errorf("reclaim the jobs of process %d: %v", id, err)
	}
}

// theFileAgrees checks that the file beside the ledger has the ledger's tags after the next change, and
// that nothing is withheld.
func theFileAgrees(l *Ledger) error {
	n, err := l.Withhold(time.Now())
	if err != nil || n > 0 {
		return fmt.Errorf("%d tags are withheld, error %w", n, err)
	}
	file, err := l.taken()
	if err != nil {
		return err
	}
	var own []tag
	err = l.view("look", func(m machine) (err error) {
		own, err = m.notFree()
		return err
	})
	if err == nil && !slices.Equal(file, own) {
		err = fmt.Errorf("the file has %v, and the ledger %v", file, own)
	}
	return err
}

// reclaim ends the jobs of a process, and compares the books.
func (k *killer) reclaim(l *Ledger, process uint32) error {
	if err := errors.Join(l.Check(), theFileAgrees(l)); err != nil {
		return err
	}
	entries, err := l.Entry(process)
	if err != nil {
		return err
	}
	held := map[fabric.Tag]bool{}
	for _, e := range entries {
		for _, t := range e.Reservation.Tags(fabric.VNI) {
			held[t] = true
		}
	}
	for t := range k.owners {
		switch owner := k.owners[t].Load(); {
		case held[fabric.Tag(t)] && owner != 0 && owner != process:
			return fmt.Errorf("process %d has tag %d, too", owner, t)
		case owner == process && !held[fabric.Tag(t)]:
			return fmt.Errorf("its tag %d is lost", t)
		case owner == process:
			k.owners[t].Store(0)
		}
	}
	for _, e := range entries {
		if err := finish(l, e.Reservation.Job); err != nil {
			return err
		}
	}
	return nil
}
