package node

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/cxi"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
)

// A node on which no task of the job ran has nothing of it. The controller waits for its
// word all the same, even if its letter has never come into the job's record. The run before
// has ended for certain; the run that the record names has a later record to say so.
func TestANodeThatHeldNothingConfirms(t *testing.T) {
	first, second := journal.ID{Job: 4217}, journal.ID{Job: 4217, Restart: 1}
	tests := map[string]struct {
		restart string
		letter  *journal.ID // in the record; nil for none
		atOnce  []journal.ID
		state   string       // that the record has later; "" if nobody needs to look again
		later   []journal.ID // what is confirmed then
	}{
		"of a job":                              {"0", &first, []journal.ID{first}, "", nil},
		"of a job without a letter":             {"0", nil, nil, "CANCELLED", []journal.ID{first}},
		"of a job that is requeued":             {"1", &first, []journal.ID{first}, "PENDING", []journal.ID{first}},
		"of a second run":                       {"1", &second, []journal.ID{second}, "", nil},
		"of a second run without a letter":      {"1", &first, []journal.ID{first}, "FAILED", []journal.ID{first, second}},
		"of a job without any letter":           {"1", nil, []journal.ID{first}, "REQUEUE_HOLD", []journal.ID{first}},
		"of a job whose next run has begun":     {"1", &first, []journal.ID{first}, "RUNNING", []journal.ID{first}},
		"of a job that slurmctld has forgotten": {"0", nil, nil, "forgotten", []journal.ID{first}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.set("state", "COMPLETING")
			d.set("restart", tt.restart)
			if tt.letter != nil {
				r := reservation()
				r.Job = *tt.letter
				d.reserve(r, "c1", *tt.letter)
			}
			err := d.End(t.Context(), 4217, true, nothingLeft)
			if errors.Is(err, ErrUndecided) != (tt.state != "") || err != nil && tt.state == "" {
				t.Errorf("error = %v", err)
			}
			d.mustHaveConfirmed(tt.atOnce...)
			if tt.state != "" {
				d.set("state", tt.state)
				if tt.state == "forgotten" {
					d.set("forgotten", "")
				}
				if err := d.Linger(t.Context(), 4217, time.Minute, nothingLeft, unheard); err != nil {
					t.Error(err)
				}
				d.mustHaveConfirmed(tt.later...)
			}
			d.mustHoldNothing()
		})
	}
}

func (d *desk) mustHaveConfirmed(want ...journal.ID) {
	d.t.Helper()
	if diff := cmp.Diff(want, d.confirmed()); diff != "" {
		d.t.Errorf("confirmations differ (-want +got):\n%s", diff)
	}
}

func TestAJobThatWantsNoTagsIsNotConfirmed(t *testing.T) {
	d := newDesk(t)
	d.reserve(reservation(), "c1", id)
	if err := d.End(t.Context(), 4217, false, nothingLeft); err != nil {
		t.Error(err)
	}
	d.mustHaveConfirmed()
	d.mustHoldNothing()
}

// Run 0 has left a journal, and no task of run 1 has run here.
func TestARunIsConfirmedBesideTheJournalOfAnEarlierOne(t *testing.T) {
	d := newDesk(t)
	d.up()
	second := journal.ID{Job: 4217, Restart: 1}
	r := reservation()
	r.Job = second
	d.set("restart", "1")
	d.reserve(r, "c1", second)
	if err := d.End(t.Context(), 4217, true, nothingLeft); err != nil {
		t.Error(err)
	}
	d.mustHaveConfirmed(id, second)
	d.mustHoldNothing()
}

// What ends with its journal is not told to slurmctld twice.
func TestTheEndOfAJournalConfirmsOnce(t *testing.T) {
	d := newDesk(t)
	d.up()
	if err := d.End(t.Context(), 4217, true, nothingLeft); err != nil {
		t.Error(err)
	}
	if told, _ := os.ReadFile(filepath.Join(d.dir, "told")); string(told) != "told\ntold\n" { // the boot, and the end
		t.Errorf("slurmctld was told %q", told)
	}
	d.mustBeClean()
}

// A run that holds something has a journal. No record and no letter makes the node confirm it
// before that is undone.
func TestARunWithAJournalIsNotConfirmedByARecord(t *testing.T) {
	d := newDesk(t)
	d.up()
	d.set("state", "COMPLETED")
	d.mustSet(d.pending, 4217)
	if err := d.confirmLate(t.Context(), 4217, nothingLeft); err != nil {
		t.Error(err)
	}
	if got := d.services(); len(got) != 4 || d.confirmed() != nil {
		t.Errorf("services %v, confirmed %v", got, d.confirmed())
	}
	lock, err := journal.Open(d.records.dir, id)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := d.confirmLate(t.Context(), 4217, nothingLeft); err != nil || d.confirmed() != nil {
		t.Errorf("while its agent is at work: %v, confirmed %v", err, d.confirmed())
	}
}

// An agent gives a run its tags while another looks for services that may be of that run.
func TestARunThatGetsAJournalMeanwhileIsNotConfirmed(t *testing.T) {
	d := newDesk(t)
	begins := func() ([]cxi.Placed, error) {
		d.up()
		return nil, nil
	}
	if err := d.confirmOne(t.Context(), unheld{id: id, of: id}, begins, nothingLeft); err != nil {
		t.Error(err)
	}
	if got := d.services(); len(got) != 4 || d.confirmed() != nil {
		t.Errorf("services %v, confirmed %v", got, d.confirmed())
	}
}

// A run that is not over may get its tags on the node.
func TestWhichRunsAreOver(t *testing.T) {
	tests := map[string]struct {
		state   string
		restart uint32
		want    []uint32
		decided bool
	}{
		"one that has ended":            {"COMPLETED", 0, []uint32{0}, true},
		"the last two":                  {"NODE_FAIL", 3, []uint32{2, 3}, true},
		"none while the job completes":  {"COMPLETING", 0, nil, false},
		"all before while it completes": {"COMPLETING", 2, []uint32{1}, false},
		"the one before if it waits":    {"PENDING", 2, []uint32{1}, true},
		"the one before if it is held":  {"SPECIAL_EXIT", 2, []uint32{1}, true},
		"the one before if it begins":   {"CONFIGURING", 2, []uint32{1}, true},
		"the one before if it runs":     {"RUNNING", 1, []uint32{0}, true},
		"an unknown state says nothing": {"DREAMING", 1, []uint32{0}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			runs, decided := overBy(slurm.NotedJob{Job: 4217, Restart: tt.restart, State: tt.state})
			var got []uint32
			for _, run := range runs {
				if run.id != run.of || run.id.Job != 4217 {
					t.Errorf("run %+v", run)
				}
				got = append(got, run.id.Restart)
			}
			if decided != tt.decided || !slices.Equal(got, tt.want) {
				t.Errorf("%v, decided %v; want %v, %v", got, decided, tt.want, tt.decided)
			}
		})
	}
}

func TestTheRunThatHasEndedIsFoundLater(t *testing.T) {
	for name, forget := range map[string]bool{"from its record": false, "though slurmctld has forgotten it": true} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.set("state", "COMPLETING")
			d.reserve(reservation(), "c1", id)
			d.set("down", "")
			if err := d.End(t.Context(), 4217, true, nothingLeft); err == nil || errors.Is(err, ErrUndecided) {
				t.Errorf("a slurmctld that does not answer knows the run: %v", err)
			}
			d.unset("down")
			if forget {
				d.set("forgotten", "")
			}
			if done, err := d.Clean(t.Context(), Cleaning{}, running(id), nothingLeft); err != nil || len(done) > 0 {
				t.Errorf("while it runs: %v, %v", done, err)
			}
			if done, err := d.Clean(t.Context(), Cleaning{}, running(), nothingLeft); err != nil || (len(done) > 0) != forget {
				t.Errorf("while it completes elsewhere: %v, %v", done, err)
			}
			d.set("state", "COMPLETED")
			if done, err := d.Clean(t.Context(), Cleaning{}, running(), nothingLeft); err != nil || (len(done) > 0) == forget {
				t.Errorf("after its end: %v, %v", done, err)
			}
			d.mustBeClean()
		})
	}
}

// After the journal has gone, only the statement says that slurmctld is to be told.
func TestLingerConfirmsWhatEndCouldNotTell(t *testing.T) {
	d := newDesk(t)
	d.up()
	d.set("down", "")
	if err := d.End(d.whileUnheard(), 4217, true, nothingLeft); err == nil {
		t.Error("a slurmctld that does not answer is told")
	}
	if d.records.holds(id) {
		t.Error("the journal is still there")
	}
	d.unset("down")
	if err := d.Linger(t.Context(), 4217, time.Minute, nothingLeft, unheard); err != nil {
		t.Error(err)
	}
	d.mustBeClean()
}

// A job that is requeued can be on the node again while its first run is still being ended.
func TestLingerLeavesTheNextRunAlone(t *testing.T) {
	d := newDesk(t)
	r := reservation()
	r.Job.Restart = 1
	d.set("restart", "1")
	d.reserve(r, "c1", r.Job)
	if _, err := d.Up(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	if _, err := d.endAgain(t.Context(), []journal.ID{id}, 4217, nothingLeft); err != nil {
		t.Error(err)
	}
	if got := d.services(); len(got) != 4 || !slices.Equal(d.confirmed(), []journal.ID{id}) {
		t.Errorf("services %v, confirmed %v", got, d.confirmed())
	}
}

// The plugin's lock file says that the agent has failed in a step. It stays until the job's
// end, and goes then, whether the job has had tags or not.
func TestTheLockLastsAsLongAsTheJob(t *testing.T) {
	d := newDesk(t)
	lock := func() { t.Helper(); d.mustSet(d.records.locks(), 4217) }
	lock()
	d.fake.Set("ALLOC_ERRNO=1")
	d.reserve(reservation(), "c1", id)
	if _, err := d.Up(t.Context(), job); err == nil {
		t.Error("a card that refuses gives a service")
	}
	if !d.records.locks().has(4217) {
		t.Error("a failure removes the lock that the plugin holds")
	}
	if err := d.End(t.Context(), 4217, true, nothingLeft); err != nil {
		t.Error(err)
	}
	d.mustBeClean()
	lock()
	for _, tt := range []struct {
		how  Cleaning
		live Running
		left bool
	}{{Cleaning{DryRun: true}, running(), true}, {Cleaning{}, running(id), true}, {Cleaning{}, running(), false}} {
		if done, err := d.Clean(t.Context(), tt.how, tt.live, nothingLeft); err != nil || len(done) > 0 || d.records.locks().has(4217) != tt.left {
			t.Errorf("%+v: %v, %v, lock %v", tt.how, done, err, d.records.locks().has(4217))
		}
	}
}

func (d *desk) mustSet(files numbered, job uint32) {
	d.t.Helper()
	if err := files.set(job); err != nil {
		d.t.Fatal(err)
	}
}

// The letter says which services a run can have. A service of nobody holds up those runs only whose it
// may be.
func TestAServiceOfNobodyHoldsUpTheRunsWhoseItMayBe(t *testing.T) {
	none, own, other := reservation(), reservation(), reservation()
	none.Grants = none.Grants[:1] // the VLAN
	own.UID, own.Grants[1].Tags = 7, []fabric.Tag{1050}
	tests := map[string]struct {
		letter    *fabric.Reservation
		confirmed bool
	}{
		"of a run that is not known":    {nil, false},
		"of a run with such a service":  {&own, false},
		"of a run with other VNIs":      {&other, true},
		"of a run without VNIs":         {&none, true},
		"of a run whose cards are mute": {&none, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.make(1050) // of user 7
			d.set("state", "COMPLETED")
			if tt.letter != nil {
				d.reserve(*tt.letter, "c1", id)
			}
			if strings.Contains(name, "mute") {
				d.fake.Set("GARBLED=1")
			}
			err := d.End(t.Context(), 4217, true, nothingLeft)
			if got := slices.Contains(d.confirmed(), id); got != tt.confirmed || (err == nil) != tt.confirmed {
				t.Errorf("confirmed: %v; error = %v", got, err)
			}
		})
	}
}
