package ledger

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/slurm-v/slurm-v/fabric"
)

// withholds checks how many tags are withheld.
func (b *bench) withholds(want int) {
	b.t.Helper()
	if n, err := b.l.Withhold(b.now); err != nil || n != want {
		b.t.Fatalf("%d tags are withheld, error %v; want %d", n, err, want)
	}
}

func (b *bench) copy() []byte {
	b.t.Helper()
	text, err := os.ReadFile(b.l.path)
	noError(b.t, err)
	return text
}

// Job 1 has ended, and no node has undone it, when an old copy is put back that does not know it.
func TestTagsThatAnOldCopyLacksAreWithheld(t *testing.T) {
	b := newBench(t, 1024, 1026)
	b.gives(id(9), 1024)
	old := b.copy()
	b.gives(id(1), 1025)
	b.end(id(1))
	b.restore(old)
	b.withholds(1)
	b.gives(id(2), 1026)
	b.refuses(id(3))
	b.cool()
	b.refuses(id(3))
	if e := b.entry(Unknown); e.State != Quarantined || e.Why != whyWithheld {
		t.Errorf("entry = %+v", e)
	}
	b.withholds(0) // once
	noError(t, b.l.Force(Unknown, b.now))
	b.refuses(id(3))
	b.cool()
	b.gives(id(3), 1025)
}

// What the copy says of a tag may be of long ago.
func TestTagsThatAnOldCopyKnowsOtherwiseAreWithheld(t *testing.T) {
	for name, long := range map[string]func(b *bench){
		"it is another job's":    func(*bench) {},
		"another job has ended":  func(b *bench) { b.end(id(7)) },
		"a node waits":           func(b *bench) { b.end(id(7)); b.confirm(id(7), "n1") },
		"it cools":               func(b *bench) { b.end(id(7)); b.confirm(id(7), "n1", "n2") },
		"it has cooled for long": func(b *bench) { b.end(id(7)); b.confirm(id(7), "n1", "n2"); b.cool() },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 1024, 1024)
			b.gives(id(7), 1024)
			long(b)
			old := b.copy()
			b.end(id(7))
			b.confirm(id(7), "n1", "n2")
			b.cool()
			b.gives(id(1), 1024)
			b.restore(old)
			b.end(id(7)) // slurmctld does not have it
			b.withholds(1)
			b.confirm(id(7), "n1", "n2")
			b.cool()
			b.refuses(id(3))
			noError(t, b.l.Force(Unknown, b.now))
			b.cool()
			b.gives(id(3), 1024)
		})
	}
}

func TestTagsOfJobsThatRunAreNotWithheld(t *testing.T) {
	b := newBench(t, 1024, 1025)
	b.gives(id(1), 1024)
	old := b.copy()
	b.gives(id(2), 1025)
	r := b.entry(id(2)).Reservation
	b.restore(old)
	noError(t, b.adopt(r, "n1", "n2"))
	b.withholds(0)
	for _, job := range []uint32{1, 2} {
		if e := b.entry(id(job)); e.State != Reserved {
			t.Errorf("entry = %+v", e)
		}
	}
}

// Whose a tag is may turn out later. That is no conflict, and the tag is still withheld.
func TestTheJobOfAWithheldTagTurnsUp(t *testing.T) {
	b := newBench(t, 1024, 1024)
	old := b.copy()
	b.gives(id(1), 1024)
	r := b.entry(id(1)).Reservation
	b.restore(old)
	b.withholds(1)
	noError(t, b.adopt(r, "n1"), b.l.Check())
	b.end(id(1))
	b.confirm(id(1), "n1")
	b.cool()
	b.refuses(id(2))
}

// Only an old copy lacks anything.
func TestNothingIsWithheldElse(t *testing.T) {
	mark := func(b *bench) []byte {
		text, err := os.ReadFile(b.l.path + markSuffix)
		noError(b.t, err)
		return text
	}
	for name, change := range map[string]func(b *bench){
		"nothing is wrong":    func(*bench) {},
		"a process is killed": func(b *bench) { b.killed() },
		"its file is lost":    func(b *bench) { noError(b.t, os.Remove(b.l.path+markSuffix)) },
		"its file is cut":     func(b *bench) { noError(b.t, os.Truncate(b.l.path+markSuffix, 100)) },
		"its file is older, after a power cut": func(b *bench) {
			old := mark(b)
			b.end(id(2))
			b.confirm(id(2), "n1", "n2")
			noError(b.t, os.WriteFile(b.l.path+markSuffix, old, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 1024, 1027)
			b.gives(id(1), 1024)
			b.gives(id(2), 1025)
			b.gives(id(3), 1026)
			b.end(id(2))
			b.end(id(3))
			b.confirm(id(3), "n1", "n2")
			change(b)
			b.withholds(0)
			b.knows(vniTags(1024, 1025, 1026)...)
		})
	}
}

// A killed change takes a tag in the file only, and then frees it in the ledger only.
func TestTheFileFollowsTheLedgerAfterAKill(t *testing.T) {
	b := newBench(t, 1024, 1025)
	b.gives(id(1), 1024)
	b.killed(tag{fabric.VNI, 1025})
	b.knows(vniTags(1024, 1025)...)
	b.end(id(1))
	b.knows(vniTags(1024)...)
	b.restore(b.copy())
	b.withholds(0)
}

func vniTags(numbers ...fabric.Tag) (all []tag) {
	for _, n := range numbers {
		all = append(all, tag{fabric.VNI, n})
	}
	return all
}

// knows checks which tags the file has as not free.
func (b *bench) knows(want ...tag) {
	b.t.Helper()
	got, err := b.l.taken()
	if err != nil || !slices.Equal(got, want) {
		b.t.Errorf("the file has %v, error %v; want %v", got, err, want)
	}
}

func TestAllKindsHaveBitsOfTheirOwn(t *testing.T) {
	b := newBench(t, 1024, 1024)
	want := []tag{{fabric.VLAN, 0}, {fabric.VLAN, 4094}, {fabric.PKey, 0x7fff}, {fabric.PKey, 0xffff}, {fabric.VNI, 0}, {fabric.VNI, 1}, {fabric.VNI, 65535}}
	noError(t, b.l.update("test", func(m machine) error {
		var errs []error
		for _, t := range want {
			errs = append(errs, m.cool(t, b.now))
		}
		return errors.Join(errs...)
	}))
	b.knows(want...)
	b.cool()
	b.gives(id(1), 1024)
	b.knows(vniTags(1024)...)
}
