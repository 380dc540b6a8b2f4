package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/fabric/letter"
	"github.com/slurm-v/slurm-v/journal"
)

// A restart of the node ends what it held.
func TestAJournalOfAnEarlierBoot(t *testing.T) {
	const earlier = "00000000-0000-0000-0000-000000000000"
	t.Run("of a job that has ended is confirmed", func(t *testing.T) {
		d := newDesk(t)
		d.cfg.VNI.LibCXI = "/no/libcxi.so.1" // nobody needs to look at the cards
		d.writeJournal(earlier, true, true)
		if _, err := d.Clean(t.Context(), Cleaning{}, running(), nothingLeft); err != nil {
			t.Error(err)
		}
		d.mustBeClean()
	})
	t.Run("of a job that runs is not", func(t *testing.T) {
		d := newDesk(t)
		d.writeJournal(earlier, true, true)
		if done, err := d.Clean(t.Context(), Cleaning{}, running(id), nothingLeft); err != nil || len(done) > 0 || d.confirmed() != nil {
			t.Errorf("%v, %v, confirmed %v", done, err, d.confirmed())
		}
		d.up()
		if len(d.services()) != 4 {
			t.Errorf("services %v", d.services())
		}
	})
}

func TestCleanRemovesStrays(t *testing.T) {
	tests := map[string]struct {
		how  Cleaning
		want []string
		done int
	}{
		"with a VNI of the pool": {Cleaning{}, []string{"cxi0:4000"}, 1},
		"with any VNI":           {Cleaning{All: true}, nil, 2},
		"only in words":          {Cleaning{All: true, DryRun: true}, []string{"cxi0:1050", "cxi0:4000"}, 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.up()
			d.make(1050)
			d.make(4000)
			done, err := d.Clean(t.Context(), tt.how, running(id), nothingLeft)
			if err != nil || len(done) != tt.done {
				t.Errorf("%q, %v", done, err)
			}
			mine := []string{"cxi1:1027,1028", "cxi2:1027,1028", "cxi3:1027,1028"}
			want := slices.Concat([]string{"cxi0:1027,1028"}, tt.want, mine)
			if diff := cmp.Diff(want, d.services()); diff != "" {
				t.Errorf("services differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestADryRunTouchesNothing(t *testing.T) {
	d := newDesk(t)
	d.up()
	done, err := d.Clean(t.Context(), Cleaning{DryRun: true}, running(), nothingLeft)
	if diff := cmp.Diff([]string{"would have released the tags of job 4217.0"}, done); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if len(d.services()) != 4 || d.confirmed() != nil {
		t.Errorf("services %v, confirmed %v", d.services(), d.confirmed())
	}
}

// Each service of an ended job is the job's, and no stray besides.
func TestCleanReportsAnEndedJobOnce(t *testing.T) {
	d := newDesk(t)
	d.up()
	d.make(1050)
	done, err := d.Clean(t.Context(), Cleaning{}, running(), nothingLeft)
	if diff := cmp.Diff([]string{"released the tags of job 4217.0", "removed the CXI service 3 on cxi0"}, done); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	d.mustBeClean()
}

// A job that has VLANs alone needs no card of Slingshot for its end.
func TestCleanGoesOnIfACardCannotBeRead(t *testing.T) {
	d := newDesk(t)
	r := reservation()
	r.Grants = r.Grants[:1]
	d.reserve(r, "c1", id)
	if _, err := d.Up(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	d.fake.Set("GARBLED=1")
	done, err := d.Clean(t.Context(), Cleaning{}, running(), nothingLeft)
	if diff := cmp.Diff([]string{"released the tags of job 4217.0"}, done); err == nil || diff != "" {
		t.Errorf("error = %v (-want +got):\n%s", err, diff)
	}
	d.fake.Set("GARBLED=0")
	d.mustBeClean()
}

// The agent was killed, and slurmctld has forgotten that the job began here.
func TestCleanAnswersTheController(t *testing.T) {
	tests := map[string]struct {
		before    func(*desk)
		live      []journal.ID
		confirmed []journal.ID
	}{
		"of a run that has nothing here":   {func(*desk) {}, nil, []journal.ID{id}},
		"not of a job that is here":        {func(*desk) {}, []journal.ID{id}, nil},
		"not for the run before a restart": {func(*desk) {}, []journal.ID{{Job: 4217, Restart: 1}}, nil},
		"not of a run with tags":           {func(d *desk) { d.up(); d.fake.Set("BUSY=-1") }, nil, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			tt.before(d)
			if _, err := d.Clean(t.Context(), Cleaning{}, running(id), nothingLeft); err != nil {
				t.Fatal(err)
			}
			d.ask(id)
			_, _ = d.Clean(t.Context(), Cleaning{}, running(tt.live...), nothingLeft)
			if got := d.confirmed(); !slices.Equal(got, tt.confirmed) {
				t.Errorf("confirmed %v, want %v", got, tt.confirmed)
			}
			comment, err := os.ReadFile(filepath.Join(d.dir, "comment"))
			if err != nil || len(letter.Asked(string(comment))) > 0 {
				t.Errorf("the node is still asked: %s, %v", comment, err)
			}
		})
	}
}

// ask is the controller, which asks for runs in the node's Comment.
func (d *desk) ask(ids ...journal.ID) {
	d.t.Helper()
	comment, err := os.ReadFile(filepath.Join(d.dir, "comment"))
	if err != nil {
		d.t.Fatal(err)
	}
	d.set("comment", letter.PutAsks(string(comment), ids))
}

// The journal of a run may be lost, and its services may be there.
func TestANodeConfirmsNothingBesideTheVNIsOfNobody(t *testing.T) {
	tests := map[string]struct {
		before    func(*desk)
		confirmed bool
	}{
		"a VNI of the pool, in use":       {func(d *desk) { d.make(1050); d.fake.Set("BUSY=-1") }, false},
		"one that could be removed":       {func(d *desk) { d.make(1050) }, true},
		"a VNI of the site's own, in use": {func(d *desk) { d.make(4000); d.fake.Set("BUSY=-1") }, true},
		"cards that cannot be read":       {func(d *desk) { d.fake.Set("GARBLED=1") }, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			if _, err := d.Clean(t.Context(), Cleaning{}, running(id), nothingLeft); err != nil {
				t.Fatal(err)
			}
			tt.before(d)
			d.ask(id)
			_, err := d.Clean(t.Context(), Cleaning{}, running(), nothingLeft)
			if got := slices.Contains(d.confirmed(), id); got != tt.confirmed || (err == nil) != tt.confirmed {
				t.Errorf("confirmed: %v; error = %v", got, err)
			}
		})
	}
}

// If Slurm does not say what runs, everything may.
func TestCleanNeedsToKnowWhatRuns(t *testing.T) {
	d := newDesk(t)
	d.up()
	mute := errors.New("no answer")
	_, err := d.Clean(t.Context(), Cleaning{}, func(context.Context) (map[journal.ID]bool, error) { return nil, mute }, nothingLeft)
	if !errors.Is(err, mute) || len(d.services()) != 4 {
		t.Errorf("%v, services %v", err, d.services())
	}
}
