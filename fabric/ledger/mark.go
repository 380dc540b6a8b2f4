package ledger

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/bits"
	"os"
	"slices"

	"github.com/slurm-v/slurm-v/fabric"
)

// markSuffix is of the file beside the ledger that knows an old copy of it, and what that lacks.
//
// The file begins with a line of lineSize bytes, see [mark]. Then comes a bit for each number of
// each kind of tag, in the order of [fabric.Kinds]: whether the tag is not free. A change writes
// the line, the bits that it changes, commits the ledger, and writes the line again. So the file
// of a ledger that was put back is of a later change than the ledger, and its bits say what was
// taken when the other ledger was lost.
//
// Nothing syncs the file. After a power cut it may be of an earlier change than the ledger; its
// bits are then made anew.
const markSuffix = ".mark"

const (
	lineSize  = 64
	kindSize  = (1 << 16) / 8
	committed = "committed"
	begun     = "begun"
)

var fileSize = lineSize + len(fabric.Kinds)*kindSize

// A mark says which change of the ledger was the last.
type mark struct {
	number uint64 // of the change
	name   string // of the change, a random one: numbers are given again where the file was lost
	state  string // begun or committed
}

func (k mark) line() []byte {
	return fmt.Appendf(nil, "%-*s\n", lineSize-1, fmt.Sprintf("%d %s %s", k.number, k.name, k.state))
}

// last reports whether the change that a ledger has as its last one is the file's.
func (k mark) last(seen mark) bool {
	return seen.state == committed && seen.name == k.name && seen.number == k.number
}

// readMark returns the file's mark; a zero one if there is none that can be read.
func (l *Ledger) readMark() (k mark, err error) {
	f, err := os.Open(l.path + markSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return k, err
	}
	defer f.Close()
	line := make([]byte, lineSize)
	if _, err := io.ReadFull(f, line); err != nil {
		return k, nil
	}
	if _, err := fmt.Sscanf(string(line), "%d %s %s", &k.number, &k.name, &k.state); err != nil || string(k.line()) != string(line) {
		return mark{}, nil
	}
	info, err := f.Stat()
	if err == nil && info.Size() != int64(fileSize) {
		k = mark{}
	}
	return k, err
}

// lastChange returns the mark that the last change has left in the ledger.
func (f facts) lastChange() (k mark, err error) {
	if _, err = f.read(meta, "change", &k.number); err != nil {
		return k, err
	}
	_, err = f.read(meta, "mark", &k.name)
	return k, err
}

// current reports whether the ledger is as its last change has left it.
func (l *Ledger) current(f facts) (bool, error) {
	own, err := f.lastChange()
	if err != nil {
		return false, err
	}
	seen, err := l.readMark()
	return own.last(seen), err
}

// doubt is the first part of each change. If the ledger is not as its last change has left it, doubt
// forgets the instance that it was compared with. The bits stay only if the ledger is an old copy.
// It returns the number of the change that begins: later than all others of this ledger.
func (l *Ledger) doubt(m machine) (number uint64, err error) {
	own, err := m.lastChange()
	if err != nil {
		return 0, err
	}
	seen, err := l.readMark()
	if err != nil {
		return 0, err
	}
	number = max(own.number, seen.number) + 1
	if own.last(seen) {
		return number, nil
	}
	killed := seen.state == begun && seen.number == own.number+1 // the process that began the change
	if seen.number <= own.number || killed {
		err = l.writeTags(m.facts)
	} else {
		err = m.growOld()
	}
	return number, errors.Join(err, m.setInstance(""))
}

// writeTags makes the file with the bits of the ledger, and without a mark. It is part of a ledger's
// first change.
func (l *Ledger) writeTags(f facts) error {
	removeNew(l.path)
	all, err := f.notFree()
	if err != nil {
		return err
	}
	text := make([]byte, fileSize)
	copy(text, mark{}.line())
	for _, t := range all {
		at, bit := t.place()
		text[at] |= bit
	}
	return os.WriteFile(l.path+markSuffix, text, 0o600)
}

// place is where the file has a tag's bit.
func (t tag) place() (at int64, bit byte) {
	kind := slices.Index(fabric.Kinds, t.kind)
	return int64(lineSize + kind*kindSize + int(t.number)/8), 1 << (t.number % 8)
}

// begin is the last part of each change.
func (l *Ledger) begin(m machine, number uint64, changed map[tag]bool) (k mark, err error) {
	k = mark{number, rand.Text(), begun}
	if err := errors.Join(m.write(meta, "change", k.number), m.write(meta, "mark", k.name)); err != nil {
		return k, err
	}
	f, err := os.OpenFile(l.path+markSuffix, os.O_RDWR, 0)
	if err != nil {
		return k, err
	}
	defer f.Close()
	if _, err := f.WriteAt(k.line(), 0); err != nil {
		return k, err
	}
	for t, taken := range changed {
		if err := setBit(f, t, taken); err != nil {
			return k, err
		}
	}
	return k, nil
}

func setBit(f *os.File, t tag, taken bool) error {
	at, bit := t.place()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		return err
	}
	b[0] &^= bit
	if taken {
		b[0] |= bit
	}
	_, err := f.WriteAt(b[:], at)
	return err
}

// commit says that the change is on disk. Where it cannot, the next change compares once more.
func (l *Ledger) commit(k mark) {
	f, err := os.OpenFile(l.path+markSuffix, os.O_WRONLY, 0)
	if err != nil {
		return
	}
	k.state = committed
	_, _ = f.WriteAt(k.line(), 0)
	_ = f.Close()
}

// taken returns the tags that were not free for the ledger that was lost, or are not for this one.
func (l *Ledger) taken() (all []tag, err error) {
	text, err := os.ReadFile(l.path + markSuffix)
	if err == nil && len(text) != fileSize {
		err = fmt.Errorf("%s%s has %d bytes, not %d", l.path, markSuffix, len(text), fileSize)
	}
	if err != nil {
		return nil, err
	}
	for i, b := range text[lineSize:] {
		for ; b != 0; b &= b - 1 {
			number := i%kindSize*8 + bits.TrailingZeros8(b)
			all = append(all, tag{fabric.Kinds[i/kindSize], fabric.Tag(number)})
		}
	}
	return all, nil
}

// tracked is a store that notes which tags a change takes or frees.
type tracked struct {
	store
	changed map[tag]bool
}

func (s tracked) put(b bucket, key string, value []byte) error {
	s.note(b, key, true)
	return s.store.put(b, key, value)
}

func (s tracked) remove(b bucket, key string) error {
	s.note(b, key, false)
	return s.store.remove(b, key)
}

func (s tracked) note(b bucket, key string, taken bool) {
	if t, err := parseTagKey(key); err == nil && b == tags {
		s.changed[t] = taken
	}
}
