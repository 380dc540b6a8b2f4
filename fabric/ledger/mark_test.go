package ledger

import (
	"errors"
	"os"
	"testing"
)

func TestAnOldCopyHasNoInstance(t *testing.T) {
	for name, change := range map[string]func(b *bench, old []byte){
		"an old copy":                   func(b *bench, old []byte) { b.gives(id(1), 1024); b.restore(old) },
		"one that has changed since":    func(b *bench, old []byte) { b.gives(id(1), 1024); b.restore(old); b.gives(id(2), 1024) },
		"a ledger without its mark":     func(b *bench, _ []byte) { noError(b.t, os.Remove(b.l.path+markSuffix)) },
		"half a mark, after a kill":     func(b *bench, _ []byte) { noError(b.t, os.WriteFile(b.l.path+markSuffix, []byte("AB"), 0o600)) },
		"a change that was not written": func(b *bench, _ []byte) { b.killed() },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 1024, 1026)
			noError(t, b.l.SetInstance("first"))
			old, err := os.ReadFile(b.l.path)
			noError(t, err)
			b.hasInstance("first")
			change(b, old)
			b.hasInstance("")
			noError(t, b.l.SetInstance("first"))
			_, err = b.reserve(id(3), 1)
			noError(t, err)
			b.hasInstance("first")
		})
	}
}

func TestAnOldCopyDoesNotKnowWhoHasBeenTold(t *testing.T) {
	b := newBench(t, 1024, 1024)
	b.untold(id(1))
	old, err := os.ReadFile(b.l.path)
	noError(t, err, b.l.Tell(id(1)))
	b.restore(old)
	b.end(id(1))
	b.cool()
	b.refuses(id(2))
	b.confirm(id(1), "n1", "n2")
	b.cool()
	b.gives(id(2), 1024)
}

func (b *bench) hasInstance(want string) {
	b.t.Helper()
	if got, err := b.l.Instance(); err != nil || got != want {
		b.t.Errorf("instance %q, error %v; want %q", got, err, want)
	}
}

// restore puts an old copy of the ledger in its place, as cp does.
func (b *bench) restore(old []byte) {
	b.t.Helper()
	path := b.l.path
	noError(b.t, b.l.Close(), os.WriteFile(path, old, 0o600))
	l, err := Open(b.t.Context(), path)
	noError(b.t, err)
	*b.l = *l
}

// killed is a change that takes tags, and whose process is killed after the mark is written and before
// the ledger is.
func (b *bench) killed(takes ...tag) {
	b.t.Helper()
	tx, err := b.l.db.Begin(true)
	noError(b.t, err)
	m := machineOf(bolt{tx})
	number, err := b.l.doubt(m)
	noError(b.t, err)
	changed := map[tag]bool{}
	for _, t := range takes {
		changed[t] = true
	}
	_, err = b.l.begin(m, number, changed)
	noError(b.t, errors.Join(err, tx.Rollback()))
}

// A request that is refused changes nothing, and so needs no comparison.
func TestARefusalKeepsTheInstance(t *testing.T) {
	b := newBench(t, 1024, 1024)
	noError(t, b.l.SetInstance("first"))
	if err := b.l.Force(id(9), b.now); !errors.Is(err, errUnknown) {
		t.Errorf("error %v", err)
	}
	b.hasInstance("first")
}
