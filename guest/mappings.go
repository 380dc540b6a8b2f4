package guest

import (
	"bytes"
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/cpulist"
)

// A look at a program's memory now and then misses processes that live between two looks. So the kernel tells of each
// file that a process maps to execute it, and of each fork, by which the process belongs to a program. perf(1) hears
// of them in the same way: from a ring of memory for each CPU. Nothing is sampled, and a program that neither forks nor
// maps files pays nothing.

// mappings are the MPI libraries that programs and their descendants have mapped.
type mappings struct {
	online string              // the kernel's list of CPUs that are online
	open   func(cpu int) *ring // nil if the kernel does not tell of the CPU

	mu        sync.Mutex
	rings     map[int]*ring  // by CPU; none while there is no program
	gaps      bool           // the kernel has not told of all
	untold    []mapEvent     // those of an instant that other rings may not have shown completely
	programs  map[int]member // by process
	libraries map[int]string // by the program's first process
}

// A member is a process of a program.
type member struct {
	program int // its first process
	threads int // at least 1. Of the first process it is not used: that one had some when it was added
}

var ownMappings = newMappings("/sys/devices/system/cpu/online", openRing)

func newMappings(online string, open func(cpu int) *ring) *mappings {
	return &mappings{
		online: online, open: open,
		rings: map[int]*ring{}, programs: map[int]member{}, libraries: map[int]string{},
	}
}

// add follows the program that a process is about to become.
func (m *mappings) add(pid int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listen()
	m.catchUp() // to the fork by the agent, which would make it nobody's
	m.programs[pid] = member{pid, 1}
}

// listen opens the rings of CPUs that have come online. What programs did there before is lost, and so is what they do on
// a CPU that was offline meanwhile, which ended its ring.
func (m *mappings) listen() {
	online := cpulist.Read(m.online)
	if len(m.programs) > 0 && !slices.Equal(online, slices.Sorted(maps.Keys(m.rings))) {
		m.gaps = true
	}
	for _, cpu := range online {
		if m.rings[cpu] == nil {
			m.listenTo(cpu)
		}
	}
}

func (m *mappings) listenTo(cpu int) {
	r := m.open(cpu)
	if r == nil {
		m.gaps = true
		return
	}
	m.rings[cpu] = r
	go r.whenHalfFull(func() { m.library(0) }) // which reads the rings
}

// stop closes the rings. What other processes of the VM do is no program's, and would fill them.
func (m *mappings) stop() {
	for _, r := range m.rings {
		r.close()
	}
	clear(m.rings)
	m.gaps, m.untold = false, nil
}

// library returns the MPI library that the program has mapped, or "". all says that there was no other.
func (m *mappings) library(pid int) (library string, all bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.programs) > 0 {
		m.listen()
	}
	m.catchUp()
	return m.libraries[pid], !m.gaps && len(m.rings) > 0
}

func (m *mappings) remove(pid int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.libraries, pid)
	maps.DeleteFunc(m.programs, func(_ int, of member) bool { return of.program == pid })
	if len(m.programs) == 0 {
		m.stop()
	}
}

// catchUp follows what has happened until now. What happens while the rings are read waits for the next time, because
// a fork may be in a ring that has been read already, and what the child does in one that has not.
func (m *mappings) catchUp() {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	for _, r := range m.rings {
		records := r.read()
		m.gaps = m.gaps || isFull(records)
		m.untold = append(m.untold, mapEvents(records)...)
	}
	slices.SortStableFunc(m.untold, func(a, b mapEvent) int { return int(a.time - b.time) })
	for len(m.untold) > 0 && m.untold[0].time <= now.Nano() {
		m.follow(m.untold[0])
		m.untold = m.untold[1:]
	}
}

// tellers tell about libraries, which they map, and run nothing with them.
var tellers = []string{"ldd", "ompi_info", "mpichversion", "mpiname", "impi_info"}

func (m *mappings) follow(e mapEvent) {
	of, known := m.programs[e.pid]
	switch e.kind {
	case unix.PERF_RECORD_LOST:
		m.gaps = true
	case unix.PERF_RECORD_FORK:
		m.forked(e)
	case unix.PERF_RECORD_EXIT:
		m.exited(e.pid)
	case unix.PERF_RECORD_COMM:
		if slices.Contains(tellers, e.name) {
			delete(m.programs, e.pid)
		}
	case unix.PERF_RECORD_MMAP:
		if known && m.libraries[of.program] == "" && mpiLibrary.MatchString(e.name) {
			m.libraries[of.program] = e.name
		}
	}
}

// forked follows a new process, or a new thread of one.
func (m *mappings) forked(e mapEvent) {
	parent, known := m.programs[e.parent]
	switch {
	case !known:
		delete(m.programs, e.pid) // a number that is used again
	case e.pid == e.parent:
		m.programs[e.pid] = member{parent.program, parent.threads + 1}
	default:
		m.programs[e.pid] = member{parent.program, 1}
	}
}

// exited follows a thread that has ended. The one with the process's number may end before the others: the kernel ends it
// if another one becomes a new program, as those of Go do.
func (m *mappings) exited(pid int) {
	of, known := m.programs[pid]
	switch {
	case !known || pid == of.program: // the first process stays until [mappings.remove]
	case of.threads > 1:
		m.programs[pid] = member{of.program, of.threads - 1}
	default:
		delete(m.programs, pid)
	}
}

// A mapEvent is what a process did.
type mapEvent struct {
	kind        uint32
	time        int64 // of the monotonic clock, in ns
	pid, parent int
	name        string // of the file or the program, without directories
}

// mapEvents parses records of perf_event_open(2), in which each has its time at the end.
func mapEvents(records []byte) (events []mapEvent) {
	native := binary.NativeEndian
	for len(records) >= 8 {
		size := int(native.Uint16(records[6:]))
		if size < 24 || size > len(records) {
			break
		}
		r := records[:size]
		records = records[size:]
		e := mapEvent{kind: native.Uint32(r), time: int64(native.Uint64(r[size-8:])), pid: int(native.Uint32(r[8:]))}
		texts := map[uint32]int{unix.PERF_RECORD_COMM: 16, unix.PERF_RECORD_MMAP: 40}
		if text, has := texts[e.kind]; has && size-8 > text {
			name, _, _ := bytes.Cut(r[text:size-8], []byte{0})
			e.name = filepath.Base(string(name))
		}
		e.parent = int(native.Uint32(r[12:]))
		events = append(events, e)
	}
	return events
}

// A ring is where the kernel writes the records of one CPU.
type ring struct {
	file   *os.File
	memory []byte // a page about the rest
}

// ringBytes are room for some 200 short processes.
const ringBytes = 128 << 10

// isFull reports whether the kernel may have had no room for a record, which has up to 4096 bytes of a file's name. It
// tells of those that it has lost with the next record only, and none may come.
func isFull(records []byte) bool { return len(records) > ringBytes-8192 }

// openRing returns nil if the kernel does not tell of the CPU, as in a container.
func openRing(cpu int) *ring {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_DUMMY, Sample_type: unix.PERF_SAMPLE_TIME,
		Bits: unix.PerfBitMmap | unix.PerfBitComm | unix.PerfBitTask | unix.PerfBitSampleIDAll |
			unix.PerfBitWatermark | unix.PerfBitUseClockID,
		Wakeup: ringBytes / 2, Clockid: unix.CLOCK_MONOTONIC,
	}
	attr.Size = uint32(unsafe.Sizeof(attr))
	fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil
	}
	memory, err := unix.Mmap(fd, 0, os.Getpagesize()+ringBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		_ = unix.Close(fd)
		return nil
	}
	_ = unix.SetNonblock(fd, true) // else reads would not wait in the runtime's poller
	return &ring{os.NewFile(uintptr(fd), "perf_event"), memory}
}

func (r *ring) close() {
	_ = unix.Munmap(r.memory)
	_ = r.file.Close() // which ends whenHalfFull
}

// read returns the records since the last call, and makes room for others.
func (r *ring) read() []byte {
	about := (*unix.PerfEventMmapPage)(unsafe.Pointer(&r.memory[0]))
	data := r.memory[len(r.memory)-ringBytes:]
	head, tail := atomic.LoadUint64(&about.Data_head), about.Data_tail
	records := make([]byte, head-tail)
	n := copy(records, data[tail%ringBytes:])
	copy(records[n:], data)
	atomic.StoreUint64(&about.Data_tail, head)
	return records
}

// whenHalfFull calls read each time the ring is half full, until it is closed.
func (r *ring) whenHalfFull(read func()) {
	conn, err := r.file.SyscallConn()
	for err == nil {
		waited := false
		err = conn.Read(func(uintptr) bool {
			defer func() { waited = true }()
			return waited
		})
		if err == nil {
			read()
		}
	}
}
