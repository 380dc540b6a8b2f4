package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vfpool/device"
)

// Many processes lease, change and release VFs of one store and are killed at any
// instant. All share a second book in memory of which job has which VF. It shows whether
// a VF was leased twice or a lease was lost.

const tortureEnv = "LEASE_TORTURE_DIR"

func TestMain(m *testing.M) {
	dir := os.Getenv(tortureEnv)
	if dir == "" {
		os.Exit(m.Run())
	}
	number, err := strconv.ParseUint(os.Args[1], 10, 32)
	if err == nil {
		err = (&jobProcess{dir: dir, id: uint32(number)}).run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A book is the memory that the processes share.
type book struct {
	operations *atomic.Uint32
	owners     []atomic.Uint32 // the number of the job that has the VF; 0 if it is free
}

func openBook(dir string) (book, error) {
	const size = 4 * (1 + tortureVFs)
	f, err := os.OpenFile(filepath.Join(dir, "book"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return book{}, err
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		return book{}, err
	}
	memory, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return book{}, err
	}
	words := unsafe.Slice((*atomic.Uint32)(unsafe.Pointer(&memory[0])), 1+tortureVFs)
	return book{&words[0], words[1:]}, nil
}

// A jobProcess is a process with a job's leases.
type jobProcess struct {
	dir    string
	id     uint32
	store  *Store
	book   book
	random *rand.Rand
	mine   []Lease
}

func (p *jobProcess) run() (err error) {
	if p.book, err = openBook(p.dir); err != nil {
		return err
	}
	if p.store, err = Open(filepath.Join(p.dir, "vf")); err != nil {
		return err
	}
	p.random = rand.New(rand.NewPCG(uint64(p.id), 2))
	for p.book.operations.Add(1) <= tortureOperations {
		if p.random.IntN(tortureDeath) == 0 {
			p.dieSoon()
		}
		if err := p.operation(); err != nil {
			return fmt.Errorf("job %d: %w", p.id, err)
		}
	}
	return nil
}

// dieSoon kills the process in the midst of the operations that follow.
func (p *jobProcess) dieSoon() {
	delay := time.Duration(p.random.IntN(2000)) * time.Microsecond
	time.AfterFunc(delay, func() { unix.Kill(os.Getpid(), unix.SIGKILL) })
}

func (p *jobProcess) operation() error {
	switch n := p.random.IntN(8); {
	case n < 3 || len(p.mine) == 0:
		return p.lease()
	case n < 5:
		return p.step()
	case n < 6:
		return p.look()
	default:
		return p.release()
	}
}

func (p *jobProcess) lease() error {
	l, err := p.store.Lock(context.Background())
	if err != nil {
		return err
	}
	defer l.Unlock()
	all, err := l.All()
	if err != nil {
		return err
	}
	taken := map[int]bool{}
	for _, r := range all {
		taken[r.VF.Index] = true
	}
	for range 1 + p.random.IntN(3) {
		index := p.random.IntN(tortureVFs)
		if err := p.put(l, index, taken[index]); err != nil {
			return err
		}
		taken[index] = true
	}
	return nil
}

func (p *jobProcess) put(l *Locked, index int, taken bool) error {
	vf := device.VF{Kind: device.Software, PF: "br0", Index: index}
	r, err := l.Put(Lease{VF: vf, Job: journal.ID{Job: p.id}})
	if taken && errors.Is(err, errTaken) {
		return nil
	}
	if err != nil || taken {
		return fmt.Errorf("VF %d, which is taken: %v: %w", index, taken, err)
	}
	if !p.book.owners[index].CompareAndSwap(0, p.id) {
		return fmt.Errorf("VF %d was leased to job %d, too", index, p.book.owners[index].Load())
	}
	p.mine = append(p.mine, r)
	return nil
}

func (p *jobProcess) step() error {
	r := &p.mine[p.random.IntN(len(p.mine))]
	if r.Phase == Releasing {
		return nil
	}
	r.Phase = map[Phase]Phase{Leased: Saved, Saved: Applied, Applied: Attached, Attached: Releasing}[r.Phase]
	r.Original = &device.State{Driver: "igbvf"}
	return p.store.Update(*r)
}

// look checks that the job has the leases that the book says.
func (p *jobProcess) look() error {
	all, err := p.store.Read()
	if err != nil {
		return err
	}
	found := map[int]Lease{}
	for _, r := range all {
		found[r.VF.Index] = r
	}
	for _, r := range p.mine {
		if got := found[r.VF.Index]; !got.same(r) || got.Phase != r.Phase || got.Quarantine != "" {
			return fmt.Errorf("lease of VF %d at step %s has become %+v", r.VF.Index, r.Phase, got)
		}
	}
	return nil
}

func (p *jobProcess) release() error {
	l, err := p.store.Lock(context.Background())
	if err != nil {
		return err
	}
	defer l.Unlock()
	last := len(p.mine) - 1
	r := p.mine[last]
	if p.mine = p.mine[:last]; !p.book.owners[r.VF.Index].CompareAndSwap(p.id, 0) {
		return fmt.Errorf("VF %d has gone from job %d to %d", r.VF.Index, p.id, p.book.owners[r.VF.Index].Load())
	}
	return l.Delete(r)
}

// A torturer keeps the processes running.
type torturer struct {
	t     *testing.T
	dir   string
	store *Store
	book  book
	last  atomic.Uint32 // job that was started
	kills atomic.Uint32
}

func TestTorture(t *testing.T) {
	dir := t.TempDir()
	store, err := Open(filepath.Join(dir, "vf"))
	noError(t, err)
	book, err := openBook(dir)
	noError(t, err)
	to := &torturer{t: t, dir: dir, store: store, book: book}
	var running sync.WaitGroup
	for range tortureProcesses {
		running.Go(to.keepOne)
	}
	running.Wait()
	t.Logf("%d operations, %d processes killed", tortureOperations, to.kills.Load())
	if to.kills.Load() == 0 {
		t.Error("no process was killed")
	}
	wantLeases(t, store)
	to.leaseAll()
}

// keepOne runs one process after another, each until it is killed.
func (to *torturer) keepOne() {
	for to.book.operations.Load() < tortureOperations && !to.t.Failed() {
		id := to.last.Add(1)
		var stderr bytes.Buffer
		cmd := exec.Command("/proc/self/exe", strconv.Itoa(int(id)))
		cmd.Env, cmd.Stderr = append(os.Environ(), tortureEnv+"="+to.dir), &stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		err := cmd.Run()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled() {
			to.kills.Add(1)
			err = nil
		}
		if err != nil {
			to.t.Errorf("%v: %s", err, stderr.Bytes())
		}
		if err := to.reclaim(id); err != nil {
			to.t.Errorf("reclaim job %d: %v", id, err)
		}
	}
}

// reclaim releases the leases that an ended job has left, and compares the books.
func (to *torturer) reclaim(id uint32) error {
	l, err := to.store.Lock(context.Background())
	if err != nil {
		return err
	}
	defer l.Unlock()
	all, err := l.All()
	if err != nil {
		return err
	}
	leased := map[int]bool{}
	for _, r := range all {
		if r.Quarantine != "" {
			return errors.New(r.Quarantine)
		}
		if r.Job.Job != id {
			continue
		}
		leased[r.VF.Index] = true
		if owner := to.book.owners[r.VF.Index].Swap(0); owner != 0 && owner != id {
			return fmt.Errorf("VF %d is leased to job %d, too", r.VF.Index, owner)
		}
		if err := l.Delete(r); err != nil {
			return err
		}
	}
	for i := range to.book.owners {
		if to.book.owners[i].Load() == id {
			return fmt.Errorf("its lease of VF %d is lost", i)
		}
	}
	return nil
}

// leaseAll shows that no VF is lost.
func (to *torturer) leaseAll() {
	l := lock(to.t, to.store)
	for i := range tortureVFs {
		put(to.t, l, Lease{VF: device.VF{Kind: device.Software, PF: "br0", Index: i}, Job: job})
	}
}
