package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/ledger"
	"github.com/slurm-v/slurm-v/fabric/letter"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
)

// startBesideAnOldCopy starts job 7, and job 8 with the tag 1025, of which the ledger does not
// know: an older copy of it was put back.
func (b *bench) startBesideAnOldCopy(t *testing.T) {
	t.Helper()
	b.mustStart(run(7, 0), "vni:1")
	old, err := os.ReadFile(b.Path())
	if err != nil {
		t.Fatal(err)
	}
	b.mustStart(run(8, 0), "vni:1")
	if err := os.WriteFile(b.Path(), old, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestANewSlurmctldReconciles(t *testing.T) {
	b := newBench(t)
	b.startBesideAnOldCopy(t)
	b.change(func(w *world) { delete(w.Jobs, 7) })
	b.Instance = "boot 2 2"
	b.mustStart(run(9, 0), "vni:1")
	told, _, err := b.comment(run(9, 0))
	if err != nil || !slices.Equal(vnis(told), []fabric.Tag{1026}) {
		t.Errorf("%v, %v: job 8 runs with 1025", vnis(told), err)
	}
	e := b.entries()
	if len(e) != 4 || e[1].Ended.IsZero() || !e[2].Ended.IsZero() || !slices.Equal(vnis(e[2].Reservation), []fabric.Tag{1025}) {
		t.Errorf("%+v", e)
	}
	if len(b.warnings) != 1 || !strings.Contains(b.warnings[0], ": 1 tag is in quarantine") {
		t.Errorf("%q", b.warnings)
	}
}

// An administrator puts an old copy back, and slurmctld goes on running.
func TestAnOldCopyUnderTheSameSlurmctld(t *testing.T) {
	b := newBench(t)
	b.startBesideAnOldCopy(t)
	b.mustStart(run(9, 0), "vni:1")
	told, _, err := b.comment(run(9, 0))
	if err != nil || !slices.Equal(vnis(told), []fabric.Tag{1026}) {
		t.Errorf("%v, %v: job 8 runs with 1025", vnis(told), err)
	}
	if e := b.entries(); len(e) != 3 || !slices.Equal(vnis(e[1].Reservation), []fabric.Tag{1025}) {
		t.Errorf("%+v", e)
	}
}

// Two jobs have ended since the copy was made. slurmctld has forgotten both; n1 has given back the
// tag of the first, and n1 and n2 still have that of the second.
func TestTagsThatNodesHoldAreNotInAnOldCopy(t *testing.T) {
	b := newBench(t)
	b.mustStart(run(6, 0), "vni:1")
	b.state("n1", id(6, 0))
	old, err := os.ReadFile(b.Path())
	if err != nil {
		t.Fatal(err)
	}
	released, held := b.mustStart(run(7, 0), "vni:1"), b.mustStart(run(8, 0), "vni:1") // 1025 and 1026
	for _, r := range []slurm.RunID{run(7, 0), run(8, 0)} {
		b.end(r)
	}
	b.says(letter.Statement{Node: "n1", Released: []journal.ID{released.Job}, Held: []letter.Holding{letter.HoldingOf(held)}})
	b.says(letter.Statement{Node: "n2", Released: []journal.ID{released.Job}, Held: []letter.Holding{letter.HoldingOf(held)}})
	if err := os.WriteFile(b.Path(), old, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, want := range []fabric.Tag{1027, 1028} { // nobody knows that all have given back 1025
		if r := b.mustStart(run(uint32(9+i), 0), "vni:1"); !slices.Equal(vnis(r), []fabric.Tag{want}) {
			t.Errorf("%v are given, and n1 and n2 have %v", vnis(r), vnis(held))
		}
	}
	e := b.entries()
	at := slices.IndexFunc(e, func(e ledger.Entry) bool { return e.Reservation.Job == held.Job })
	if at < 0 || e[at].State != ledger.Releasing || !slices.Equal(e[at].Nodes, []string{"n1", "n2"}) || e[at].Reservation.UID != 1000 {
		t.Fatalf("%+v", e)
	}
	b.state("n1", held.Job)
	b.state("n2", held.Job)
	b.sweep()
	if e := b.entries(); slices.ContainsFunc(e, func(e ledger.Entry) bool { return e.Reservation.Job == held.Job }) {
		t.Errorf("nobody has it any more: %+v", e)
	}
}

// Two jobs have ended since the copy was made, and nobody tells of them. Their tags are kept until an
// administrator has looked.
func TestWhatNobodyTellsIsWithheldFromJobs(t *testing.T) {
	b := newBench(t)
	b.Site.VNI.Pool = config.Tags{{First: 1024, Last: 1027}}
	b.Site.Cooling = 0
	b.mustStart(run(6, 0), "vni:1")
	old, err := os.ReadFile(b.Path())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []slurm.RunID{run(7, 0), run(8, 0)} {
		b.mustStart(r, "vni:1")
		b.end(r)
	}
	if err := os.WriteFile(b.Path(), old, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := b.mustStart(run(9, 0), "vni:1"); !slices.Equal(vnis(r), []fabric.Tag{1027}) {
		t.Errorf("%v are given", vnis(r))
	}
	if _, err := b.start(run(10, 0), "vni:1"); err == nil {
		t.Error("job 10 gets a tag, too")
	}
	if want := "2 tags are in quarantine"; len(b.warnings) == 0 || !strings.Contains(b.warnings[0], want) {
		t.Errorf("%q, want %q", b.warnings, want)
	}
	if err := b.Force(t.Context(), ledger.Unknown); err != nil {
		t.Fatal(err)
	}
	if r := b.mustStart(run(10, 0), "vni:1"); !slices.Equal(vnis(r), []fabric.Tag{1025}) {
		t.Errorf("%v are given", vnis(r))
	}
}

// What an administrator has forced stays so: a node that never comes back says for ever that it
// holds the tag.
func TestALedgerThatIsCurrentKnowsBetterThanNodes(t *testing.T) {
	b := newBench(t)
	held := b.mustStart(run(7, 0), "vni:1")
	b.end(run(7, 0))
	b.says(letter.Statement{Node: "n1", Held: []letter.Holding{letter.HoldingOf(held)}})
	if err := b.Force(context.Background(), held.Job); err != nil {
		t.Fatal(err)
	}
	b.Instance = "boot 2 2"
	b.mustStart(run(8, 0), "vni:1")
	if e := b.entries(); len(e) != 1 {
		t.Errorf("%+v", e)
	}
}

// The nodes of a job have confirmed, and it is still completing, such as in the site's epilog, when
// slurmctld restarts. Another job has its tag by then.
func TestACompletingJobThatHasGivenBackItsTagsIsNotAdopted(t *testing.T) {
	b := newBench(t)
	b.Site.VNI.Pool, b.Site.Cooling = config.Tags{{First: 1024, Last: 1024}}, 0
	b.mustStart(run(7, 0), "vni:1")
	b.change(func(w *world) { j := w.Jobs[7]; j.State = "COMPLETING"; w.Jobs[7] = j })
	if err := b.Release(t.Context(), hook(run(7, 0))); err != nil {
		t.Fatal(err)
	}
	b.state("n1", id(7, 0))
	b.state("n2", id(7, 0))
	b.sweep()
	b.mustStart(run(8, 0), "vni:1")
	b.Instance = "boot 2 2"
	b.sweep()
	if e := b.entries(); len(e) != 1 || e[0].State != ledger.Reserved || len(b.warnings) > 0 {
		t.Errorf("%+v, %q; want job 8 alone", e, b.warnings)
	}
}

func TestWithoutSlurmctldNothingIsGiven(t *testing.T) {
	for name, silent := range map[string]func(*world){
		"it does not answer":        func(w *world) { w.Down = true },
		"it does not list the jobs": func(w *world) { w.Mute = true },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.change(silent)
			if _, err := b.start(run(7, 0), "vni:1"); err == nil {
				t.Error("the ledger is given out unseen")
			}
			if e := b.entries(); len(e) > 0 {
				t.Errorf("%+v", e)
			}
		})
	}
}

func TestReserveAsksSlurmOnceAfterItsFirstCall(t *testing.T) {
	b := newBench(t)
	b.mustStart(run(7, 0), "vni:1")
	b.change(func(w *world) { w.Calls = nil })
	b.mustStart(run(8, 0), "vni:1")
	if calls := b.change(func(*world) {}).Calls; len(calls) != 2 {
		t.Errorf("slurmctld waits for %q", calls)
	}
}

func TestAComponentHasTheLeadersTags(t *testing.T) {
	b := newBench(t)
	b.change(func(w *world) {
		w.Jobs[7] = job{State: "CONFIGURING", Nodes: "n1"}
		w.Jobs[8] = job{State: "CONFIGURING", Nodes: "n2"}
	})
	w, _ := fabric.ParseWish("vni:1")
	component := hook(run(8, 0))
	component.Job, component.Nodes = run(7, 0), []string{"n2"}
	leader := hook(run(7, 0))
	leader.Nodes = []string{"n1"}
	for _, h := range []slurm.Hook{component, leader} {
		if _, err := b.Reserve(context.Background(), h, w); err != nil {
			t.Fatal(err)
		}
	}
	a, _, err1 := b.comment(run(7, 0))
	c, _, err2 := b.comment(run(8, 0))
	if err := errors.Join(err1, err2); err != nil || !slices.Equal(vnis(a), vnis(c)) || c.Job != id(7, 0) {
		t.Errorf("%+v, %+v, %v", a, c, err)
	}
	if err := b.Release(context.Background(), component); err != nil {
		t.Fatal(err)
	}
	e := b.entries()
	if len(e) != 1 || !e[0].Ended.IsZero() || !slices.Equal(e[0].Nodes, []string{"n1", "n2"}) {
		t.Fatalf("%+v", e)
	}
	if err := b.Release(context.Background(), leader); err != nil {
		t.Fatal(err)
	}
	if e := b.entries(); e[0].Ended.IsZero() {
		t.Error("the leader has ended, and the job has not")
	}
}

func TestForce(t *testing.T) {
	b := newBench(t)
	b.mustStart(run(7, 0), "vni:1")
	if err := b.Force(context.Background(), id(7, 0)); !errors.Is(err, ledger.ErrRunning) {
		t.Errorf("a running job: %v", err)
	}
	b.end(run(7, 0))
	if err := b.Force(context.Background(), id(7, 0)); err != nil || len(b.entries()) > 0 {
		t.Errorf("%v, %v", err, b.entries())
	}
}

func TestSweepUntilQuiet(t *testing.T) {
	b := newBench(t)
	b.Now = time.Now
	b.mustStart(run(7, 0), "vni:1")
	b.end(run(7, 0))
	done := make(chan error)
	go func() { done <- b.SweepUntilQuiet(context.Background()) }()
	b.awaitLinger()
	if unlock, err := b.lockLinger(context.Background()); unlock != nil || err != nil {
		t.Errorf("two processes go on sweeping: %v", err)
	}
	b.state("n1", id(7, 0))
	b.state("n2", id(7, 0))
	if err := <-done; err != nil || len(b.entries()) > 0 {
		t.Errorf("%v, %v", err, b.entries())
	}
}

// awaitLinger waits until a process goes on sweeping.
func (b *bench) awaitLinger() {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		unlock, taken, err := locks(b.Dir).try(lingerLock)
		if err != nil {
			b.t.Fatal(err)
		}
		if taken {
			return
		}
		unlock()
	}
	b.t.Fatal("nobody goes on sweeping")
}

// A process that waits for a node that is down does not leave the others' confirmations
// unread for a minute.
func TestAJobsEndShortensTheWait(t *testing.T) {
	b := newBench(t)
	b.Now = time.Now
	unlock, _, err := locks(b.Dir).try(lingerLock)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	l := b.linger()
	l.pause, l.begin = lastPause, time.Now().Add(-lingering-time.Second)
	done := make(chan error)
	go func() { done <- l.wait(context.Background()) }()
	if err := b.SweepUntilQuiet(context.Background()); err != nil { // of another job, by another process
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err != nil || l.pause != firstPause || l.late() {
			t.Errorf("error %v, and then it pauses %v; over: %v", err, l.pause, l.late())
		}
	case <-time.After(lastPause / 4):
		t.Error("it still pauses")
	}
}

func TestAnEndThatIsHeardLateIsNotForgotten(t *testing.T) {
	b := newBench(t)
	unlock, _, err := locks(b.Dir).try(lingerLock)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	l := b.linger()
	b.now = b.now.Add(lingering + time.Second)
	if !l.late() {
		t.Error("it goes on for ever")
	}
	if err := locks(b.Dir).knock(lingerLock); err != nil || l.late() {
		t.Errorf("it stops, and a job has just ended: %v", err)
	}
}

func TestInstanceOf(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(root, "proc", path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	stat := func(pid, parent int, name string) {
		write(fmt.Sprintf("%d/stat", pid), fmt.Sprintf("%d (%s) S %d 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 %d00 0", pid, name, parent, pid))
	}
	write("sys/kernel/random/boot_id", "b-1\n")
	stat(1, 0, "init")
	stat(5, 1, "slurmctld")
	stat(6, 5, "slurmscriptd")
	stat(7, 6, "a) S 1 (script")
	stat(8, 1, "sh")
	tests := map[string]struct {
		parent int
		want   string
	}{
		"below slurmscriptd":            {6, "b-1 6 600"},
		"with a script in between":      {7, "b-1 6 600"},
		"below slurmctld":               {5, "b-1 5 500"},
		"started by an administrator":   {8, ""},
		"a parent that is already gone": {9, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := instanceOf(root, tt.parent); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
