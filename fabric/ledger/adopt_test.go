package ledger

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

func (b *bench) adopt(r fabric.Reservation, nodes ...string) error {
	return b.l.Adopt(r, nodes, b.now, b.now)
}

func reservation(job journal.ID, tags ...fabric.Tag) fabric.Reservation {
	return fabric.Reservation{
		Cluster: "c", Job: job, UID: 1000,
		Grants: []fabric.Grant{{Pool: "vni", Kind: fabric.VNI, Tags: tags}},
	}
}

func TestAnAdoptedJobHasItsTags(t *testing.T) {
	b := newBench(t, 1024, 1025)
	want := reservation(id(1), 1024)
	noError(t, b.adopt(want, "n1", "n2"), b.adopt(want, "n2", "n3"))
	if diff := cmp.Diff(Entry{Reservation: want, State: Reserved, Nodes: []string{"n1", "n2", "n3"}, Began: b.now}, b.entry(id(1))); diff != "" {
		t.Errorf("entry (-want +got):\n%s", diff)
	}
	b.gives(id(1), 1024)
	b.gives(id(2), 1025)
	b.end(id(1))
	b.confirm(id(1), "n1", "n2")
	b.cool()
	b.refuses(id(3))
	b.confirm(id(1), "n3")
	b.cool()
	b.gives(id(3), 1024)
}

func TestAnAdoptedJobHasItsPKeys(t *testing.T) {
	b := newBench(t, 0x1000, 0x1000)
	b.pool.Kind = fabric.PKey
	r := reservation(id(1), 0x1000)
	r.Grants[0].Kind = fabric.PKey
	noError(t, b.adopt(r, "n1"))
	b.end(id(1))
	b.confirm(id(1), "n1")
	b.cool()
	b.free()
	noError(t, b.l.ConfirmManager(id(1), b.now))
	b.cool()
	b.free(fabric.Range{First: 0x1000, Last: 0x1000})
}

func TestATagThatCoolsIsAdopted(t *testing.T) {
	b := newBench(t, 1024, 1024)
	b.gives(id(1), 1024)
	b.end(id(1))
	b.confirm(id(1), "n1", "n2")
	noError(t, b.adopt(reservation(id(2), 1024), "n1"))
	b.cool()
	b.refuses(id(3))
}

func TestAdoptionKeepsWhatTheLedgerKnows(t *testing.T) {
	b := newBench(t, 1024, 1025)
	b.gives(id(1), 1024)
	b.end(id(1))
	b.confirm(id(1), "n1")
	noError(t, b.adopt(reservation(id(1), 1025), "n1", "n2"))
	e := b.entry(id(1))
	if e.State != Releasing || !slices.Equal(e.Nodes, []string{"n2"}) || !slices.Equal(e.Reservation.Tags(fabric.VNI), []fabric.Tag{1024, 1025}) {
		t.Errorf("entry = %+v", e)
	}
	b.free()
	b.confirm(id(1), "n2")
	b.cool()
	b.free(fabric.Range{First: 1024, Last: 1025})
}

// A tag of two jobs stays with both, and with an administrator.
func TestAConflictNamesBothJobsAndKeepsTheTag(t *testing.T) {
	b := newBench(t, 1024, 1024)
	b.gives(id(1), 1024)
	for range 2 {
		err := b.adopt(reservation(id(2), 1024), "n3")
		var conflict *ConflictError
		if !errors.As(err, &conflict) || *conflict != (ConflictError{Kind: fabric.VNI, Tag: 1024, Job: id(2), Other: id(1)}) {
			t.Fatalf("error = %v", err)
		}
		if !strings.Contains(err.Error(), "adopt job 2.0: VNI 1024 is job 2.0's and job 1.0's; ") {
			t.Errorf("error = %v", err)
		}
	}
	for job, why := range map[journal.ID]string{id(1): "VNI 1024 is also job 2.0's", id(2): "VNI 1024 is also job 1.0's"} {
		if e := b.entry(job); e.State != Quarantined || e.Why != why {
			t.Errorf("entry = %+v", e)
		}
		b.gives(job, 1024) // they run on
		b.end(job)
		b.confirm(job, "n1", "n2", "n3")
	}
	b.cool()
	b.refuses(id(3))
	noError(t, b.l.Force(id(1), b.now))
	b.cool()
	b.refuses(id(3))
	noError(t, b.l.Force(id(2), b.now))
	b.cool()
	b.gives(id(3), 1024)
}

func TestTheNewsOfAJobThatIsReleasedIsOld(t *testing.T) {
	b := newBench(t, 1024, 1024)
	b.gives(id(1), 1024)
	noError(t, b.l.SetCollectives(id(1), &fabric.Collectives{}))
	b.end(id(1))
	b.confirm(id(1), "n1", "n2")
	noError(t, b.adopt(reservation(id(1), 1024), "n1"))
	b.cool()
	b.gives(id(2), 1024)
}

func TestAnAdoptionWithoutNodesIsRefused(t *testing.T) {
	b := newBench(t, 1024, 1024)
	if err := b.adopt(reservation(id(1), 1024)); err == nil {
		t.Error("nobody could confirm")
	}
	b.gives(id(2), 1024)
}

func TestPools(t *testing.T) {
	b := newBench(t, 1024, 1030)
	b.gives(id(1), 1024)
	b.gives(id(2), 1025)
	b.gives(id(3), 1026)
	b.gives(id(4), 1027)
	b.quarantine(id(4), "test")
	if err := b.adopt(reservation(id(5), 1024), "n5"); err == nil {
		t.Error("no conflict")
	}
	b.end(id(2))
	b.confirm(id(2), "n1")
	b.end(id(3))
	b.confirm(id(3), "n1", "n2")
	got, err := b.l.Pools([]fabric.Pool{b.pool}, b.o.Cooling, b.now)
	noError(t, err)
	want := []PoolState{{
		Pool: b.pool, Last: 1027, Free: []fabric.Range{{First: 1028, Last: 1030}},
		Taken: []TagState{
			{Tag: 1024, State: Quarantined, Jobs: []journal.ID{id(1), id(5)}, Nodes: []string{"n1", "n2", "n5"}, Why: "VNI 1024 is also job 5.0's; VNI 1024 is also job 1.0's"},
			{Tag: 1025, State: Releasing, Jobs: []journal.ID{id(2)}, Nodes: []string{"n2"}},
			{Tag: 1026, State: Cooling, Until: b.now.Add(b.o.Cooling)},
			{Tag: 1027, State: Quarantined, Jobs: []journal.ID{id(4)}, Nodes: []string{"n1", "n2"}, Why: "test"},
		},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
}
