package node

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/journal"
)

// Two components of a heterogeneous job have one reservation, that of the leader. If both
// are on the node, the last one gives the services back, and confirms.
func TestTheLastComponentConfirms(t *testing.T) {
	d := newDesk(t)
	r := reservation()
	r.Job.Job = 4216
	second := job
	second.ID.Job = 4218
	for _, component := range []Job{job, second} {
		d.reserve(r, "c1", component.ID)
		if _, err := d.upOf(component); err != nil {
			t.Fatal(err)
		}
	}
	if got := d.services(); len(got) != 4 {
		t.Errorf("services %v", got)
	}
	if err := d.Down(t.Context(), id, time.Second, nothingLeft); err != nil {
		t.Error(err)
	}
	if got := d.services(); len(got) != 4 || d.confirmed() != nil {
		t.Errorf("after the first component: services %v, confirmed %v", got, d.confirmed())
	}
	if err := d.Down(t.Context(), second.ID, time.Second, nothingLeft); err != nil {
		t.Error(err)
	}
	if got := d.services(); len(got) != 0 || !slices.Equal(d.confirmed(), []journal.ID{r.Job}) {
		t.Errorf("after the second: services %v, confirmed %v", got, d.confirmed())
	}
	d.mustHoldNothing()
}

// A component of which no task ran here begins a journal to confirm. If the other one ends
// meanwhile, that journal takes no services over: it has no record to remove them by.
func TestAComponentWithoutServicesTakesNoneOver(t *testing.T) {
	d := newDesk(t)
	r := reservation()
	r.Job.Job = 4216
	d.reserve(r, "c1", id)
	if _, err := d.upOf(job); err != nil {
		t.Fatal(err)
	}
	second, err := d.records.beginFresh(journal.ID{Job: 4218}, r.Job) // as confirmOne, before end
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Down(t.Context(), id, time.Second, nothingLeft); err != nil {
		t.Error(err)
	}
	if got := d.services(); len(got) != 0 {
		t.Errorf("after the first component: services %v", got)
	}
	if err := d.end(t.Context(), second, 0, nothingLeft); err != nil {
		t.Error(err)
	}
	d.mustHaveConfirmed(r.Job)
	d.mustHoldNothing()
}

// The services that one component gives back are no longer there for another one that begins.
func TestAComponentBeginsAfterAnotherHasEnded(t *testing.T) {
	d := newDesk(t)
	d.reserve(reservation(), "c1", id)
	unlock, err := d.records.lockShared(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	up := make(chan error, 1)
	go func() {
		_, err := d.Up(t.Context(), job)
		up <- err
	}()
	select {
	case err := <-up:
		t.Fatalf("while the other one ends: %v, services %v", err, d.services())
	case <-time.After(time.Second):
	}
	if got := d.services(); len(got) > 0 {
		t.Errorf("while the other one ends: services %v", got)
	}
	unlock()
	if err := <-up; err != nil || len(d.services()) == 0 {
		t.Errorf("when it has ended: %v, services %v", err, d.services())
	}
}

func TestANodeThatHeldNothingConfirmsTheLeader(t *testing.T) {
	for name, letter := range map[string]bool{"by its letter": true, "by slurmctld's record": false} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			r := reservation()
			r.Job.Job = 4216
			if letter {
				d.reserve(r, "c1", id)
			} else {
				d.set("het", "4216")
				d.set("state", "COMPLETED")
			}
			if err := d.End(t.Context(), 4217, true, nothingLeft); err != nil || !slices.Equal(d.confirmed(), []journal.ID{r.Job}) {
				t.Errorf("%v, confirmed %v", err, d.confirmed())
			}
		})
	}
}

// The controller may read a confirmation at once, and another component may have its first task here
// only after that.
func TestAComponentThatEndsAloneDoesNotConfirmForOthers(t *testing.T) {
	for name, held := range map[string]bool{"and has had tags here": true, "and has had nothing here": false} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			r := reservation()
			r.Job.Job = 4216
			d.set("leader", "RUNNING")
			d.reserve(r, "c1", id)
			if held {
				if _, err := d.upOf(job); err != nil {
					t.Fatal(err)
				}
			}
			if err := d.End(t.Context(), 4217, true, nothingLeft); !errors.Is(err, ErrUndecided) || len(d.services()) > 0 {
				t.Errorf("error %v, services %v", err, d.services())
			}
			if _, err := d.Clean(t.Context(), Cleaning{}, running(), nothingLeft); err != nil {
				t.Error(err)
			}
			d.mustHaveConfirmed()
			d.mustSayThatItHolds()
			second := job
			second.ID.Job = 4218
			d.reserve(r, "c1", second.ID)
			if _, err := d.upOf(second); err != nil || len(d.services()) != 4 {
				t.Errorf("the other component has services %v, error %v", d.services(), err)
			}
			d.set("leader", "COMPLETING")
			if err := d.Down(t.Context(), second.ID, time.Second, nothingLeft); err != nil {
				t.Error(err)
			}
			d.mustHaveConfirmed(r.Job)
			if _, err := d.Clean(t.Context(), Cleaning{}, running(), nothingLeft); err != nil {
				t.Error(err)
			}
			d.mustHaveConfirmed(r.Job)
			d.mustHoldNothing()
		})
	}
}

// A restart of the node ends what the component held, and not whose reservation it has.
func TestAComponentOfAnEarlierBootConfirmsTheLeader(t *testing.T) {
	d := newDesk(t)
	d.writeJournal("00000000-0000-0000-0000-000000000000", true)
	leader := journal.ID{Job: 4216}
	j, err := journal.Open(d.records.dir, id)
	if err == nil {
		err = errors.Join(noteReservation(j, leader), j.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	known := func(journal.ID) error { // at any time: Clean may be killed
		if s, err := journal.Read(d.records.dir, id); err != nil || !ofEarlierBoot(s.Header) || reservationIn(id, s.Held) != leader {
			t.Errorf("the journal is now %+v, %v", s, err)
		}
		return nil
	}
	if _, err := d.Clean(t.Context(), Cleaning{}, running(), known); err != nil || !slices.Equal(d.confirmed(), []journal.ID{leader}) {
		t.Errorf("%v, confirmed %v", err, d.confirmed())
	}
	d.mustHoldNothing()
}

// The agent of a component is killed after it has begun its journal, and before that names the leader.
func TestAComponentWhoseJournalNamesNoLeaderConfirmsTheLeader(t *testing.T) {
	d := newDesk(t)
	r := reservation()
	r.Job.Job = 4216
	d.reserve(r, "c1", id)
	j, err := d.records.begin(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.Close(), d.End(t.Context(), 4217, true, nothingLeft)); err != nil {
		t.Error(err)
	}
	d.mustHaveConfirmed(id, r.Job) // nobody waits for the first
	d.mustHoldNothing()
}
