package node

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric/letter"
	"github.com/slurm-v/slurm-v/internal/filetest"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
)

func (d *desk) mustSayThatItHolds(want ...letter.Holding) {
	d.t.Helper()
	if diff := cmp.Diff(want, d.statement().Held); diff != "" {
		d.t.Errorf("held, as slurmctld knows (-want +got):\n%s", diff)
	}
}

// Slurm forgets a job whose epilog has failed, and an old copy of the ledger may not have it.
func TestANodeSaysWhatItHoldsOfAJobThatHasEnded(t *testing.T) {
	d := newDesk(t, "BUSY=-1", "BUSY_CARD=1")
	d.up()
	d.mustSayThatItHolds()
	if err := d.End(t.Context(), 4217, true, nothingLeft); err == nil {
		t.Fatal("no error, and a service is in use")
	}
	d.mustSayThatItHolds(letter.HoldingOf(reservation()))
	d.fake.Set("BUSY=0")
	if err := d.Linger(t.Context(), 4217, time.Minute, nothingLeft, unheard); err != nil {
		t.Error(err)
	}
	d.mustSayThatItHolds()
	d.mustBeClean()
}

// A node that goes down cannot say what it holds any more.
func TestCleanSaysWhatJobsHoldThatRun(t *testing.T) {
	d := newDesk(t)
	d.up()
	for range 2 {
		if done, err := d.Clean(t.Context(), Cleaning{}, running(id), nothingLeft); err != nil || len(done) > 0 {
			t.Errorf("%v, %v", done, err)
		}
		d.mustSayThatItHolds(letter.HoldingOf(reservation()))
	}
	if told, _ := os.ReadFile(filepath.Join(d.dir, "told")); string(told) != "told\ntold\n" { // the boot, and what is held
		t.Errorf("slurmctld was told %q", told)
	}
	d.set("comment", "new fans")
	if _, err := d.Clean(t.Context(), Cleaning{}, running(id), nothingLeft); err != nil {
		t.Error(err)
	}
	d.mustSayThatItHolds(letter.HoldingOf(reservation()))
	if err := d.Down(t.Context(), id, 0, nothingLeft); err != nil {
		t.Fatal(err)
	}
	d.mustSayThatItHolds()
}

// The controller takes a node that it sees in two boots after a job's end for one that has rebooted
// since it had the job's tags.
func TestSlurmctldKnowsTheBootBeforeTagsAreMade(t *testing.T) {
	d := newDesk(t)
	d.reserve(reservation(), "c1", id)
	d.set("deaf", "")
	if _, err := d.Up(d.whileUnheard(), job); err == nil || len(d.services()) > 0 || d.records.holds(id) {
		t.Errorf("error %v, and slurmctld does not know the boot; services %v", err, d.services())
	}
	d.unset("deaf")
	d.up()
	if boot, _ := journal.BootID(); d.statement().Boot != boot || len(d.services()) != 4 {
		t.Errorf("%+v, services %v", d.statement(), d.services())
	}
}

func TestAJobThatHasEndedGetsNoTags(t *testing.T) {
	for _, state := range []string{"COMPLETING", "CANCELLED", "NODE_FAIL"} {
		d := newDesk(t)
		d.reserve(reservation(), "c1", id)
		d.set("state", state)
		_, err := d.Up(t.Context(), job)
		if want := "job 4217 is " + state + ", and gets no tags on the fabric any more"; err == nil || err.Error() != want || len(d.services()) > 0 {
			t.Errorf("%v, want %s; services %v", err, want, d.services())
		}
	}
}

func TestCleanTellsANewBoot(t *testing.T) {
	d := newDesk(t)
	text := `{"statement":{"node":"n1","boot":"00000000-0000-0000-0000-000000000000","released":"7.0"},"told":true,"letter":"x"}`
	filetest.Write(t, filepath.Join(d.records.dir, "statement"), text)
	for range 2 {
		if _, err := d.Clean(t.Context(), Cleaning{}, nil, nothingLeft); err != nil {
			t.Error(err)
		}
	}
	if boot, _ := journal.BootID(); d.statement().Boot != boot || len(d.confirmed()) > 0 {
		t.Errorf("%+v", d.statement())
	}
	if told, _ := os.ReadFile(filepath.Join(d.dir, "told")); string(told) != "told\n" {
		t.Errorf("slurmctld was told %q", told)
	}
}

// A site without tags need not have a key.
func TestANodeOfASiteWithoutPoolsSaysNothing(t *testing.T) {
	d := newDesk(t)
	cfg := config.Default()
	cfg.Paths.State = filepath.Join(d.dir, "node")
	n := Open(cfg, "n1", slurm.Client{Bin: d.dir})
	if _, err := n.Clean(t.Context(), Cleaning{}, nil, nothingLeft); err != nil || d.has("told") {
		t.Errorf("error %v, told: %v", err, d.has("told"))
	}
}

func TestWhatJournalsSayIsHeld(t *testing.T) {
	const earlier = "00000000-0000-0000-0000-000000000000"
	boot, _ := journal.BootID()
	tests := map[string]struct {
		boot, tail string
		held, more bool
	}{
		"tags of this boot":            {boot, "", true, false},
		"tags from before a boot":      {earlier, "", false, false},
		"a journal that ends too soon": {boot, "spoilt\nspoilt\n", true, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.writeJournal(tt.boot)
			j, err := journal.Open(d.records.dir, id)
			if err != nil {
				t.Fatal(err)
			}
			if err := noteTags(j, reservation()); err != nil {
				t.Fatal(err)
			}
			j.Close()
			path := filepath.Join(journal.Dir(d.records.dir, id), "journal")
			text, _ := os.ReadFile(path)
			filetest.Write(t, path, string(text)+tt.tail)
			held, more := d.records.held()
			if len(held) == 1 != tt.held || more != tt.more {
				t.Errorf("%+v, more: %v", held, more)
			}
		})
	}
}
