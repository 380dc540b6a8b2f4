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
	"github.com/slurm-v/slurm-v/internal/filetest"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
)

// A bench is a controller with a cluster that does not exist.
type bench struct {
	*Controller
	t        *testing.T
	slurm    string // the directory of Slurm's commands
	now      time.Time
	warnings []string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, slurm: cluster(t), now: time.Unix(1_800_000_000, 0)}
	dir := t.TempDir()
	f := site()
	f.Key = filepath.Join(dir, "key")
	if err := os.WriteFile(f.Key, []byte(letter.NewKey()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.conf("ClusterName=c\n")
	env := []string{"GORACE=atexit_sleep_ms=0", "SLURM_CONF=" + filepath.Join(b.slurm, "slurm.conf")}
	b.Controller = &Controller{
		Site: f, Limits: config.Default().Limits, Slurm: slurm.Comments{Client: slurm.Client{Bin: b.slurm, Env: env}}, Cluster: "c", Instance: "boot 1 1", Dir: dir,
		Warn: func(s string) { b.warnings = append(b.warnings, s) },
		Now:  func() time.Time { return b.now },

		Patience: time.Minute, // b.now stands still, and so it only bounds what slurmctld may take
	}
	return b
}

// conf writes slurm.conf.
func (b *bench) conf(text string) { filetest.Write(b.t, filepath.Join(b.slurm, "slurm.conf"), text) }

func (b *bench) change(do func(*world)) world { return change(b.t, b.slurm, do) }

// start makes a job that has nodes, and reserves for it.
func (b *bench) start(run slurm.RunID, wish string) (fabric.Reservation, error) {
	b.t.Helper()
	b.change(func(w *world) {
		j := w.Jobs[run.Job]
		j.Restart, j.State, j.Nodes = run.Restart, "CONFIGURING", "n[1-2]"
		w.Jobs[run.Job] = j
	})
	return b.reserve(run, wish)
}

func (b *bench) reserve(run slurm.RunID, wish string) (fabric.Reservation, error) {
	b.t.Helper()
	w, err := fabric.ParseWish(wish)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.Reserve(context.Background(), hook(run), w)
}

func hook(run slurm.RunID) slurm.Hook {
	return slurm.Hook{Cluster: "c", Record: run, Job: run, Name: fmt.Sprint(run.Job), UID: 1000, Partition: "main", Nodes: []string{"n1", "n2"}}
}

// mustStart is start for a job that gets its tags.
func (b *bench) mustStart(run slurm.RunID, wish string) fabric.Reservation {
	b.t.Helper()
	r, err := b.start(run, wish)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (b *bench) end(run slurm.RunID) {
	b.t.Helper()
	b.change(func(w *world) { delete(w.Jobs, run.Job) })
	if err := b.Release(context.Background(), hook(run)); err != nil {
		b.t.Fatal(err)
	}
}

// state makes a node say that it has released these runs.
func (b *bench) state(node string, runs ...journal.ID) {
	b.t.Helper()
	b.says(letter.Statement{Node: node, Released: runs})
}

// says makes a node say something to slurmctld.
func (b *bench) says(s letter.Statement) {
	b.t.Helper()
	key, err := b.key()
	if err != nil {
		b.t.Fatal(err)
	}
	text, err := letter.Seal(key, letter.NodeSubject("c", s.Node), s)
	if err != nil {
		b.t.Fatal(err)
	}
	b.change(func(w *world) {
		n := w.Nodes[s.Node]
		words := map[string]string{"n1": "rack 3"}[s.Node] // n2 has nothing but the letter
		n.Comment = letter.PutBlock(words, text)
		w.Nodes[s.Node] = n
	})
}

func (b *bench) sweep() {
	b.t.Helper()
	if _, err := b.Sweep(context.Background()); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) entries() []ledger.Entry {
	b.t.Helper()
	entries, err := b.Entries(context.Background(), 0)
	if err != nil {
		b.t.Fatal(err)
	}
	return entries
}

// comment opens the letter in a job's record.
func (b *bench) comment(run slurm.RunID) (r fabric.Reservation, text string, err error) {
	b.t.Helper()
	text = b.change(func(*world) {}).Jobs[run.Job].AdminComment
	key, err := b.key()
	if err == nil {
		err = letter.Find(key, letter.ReservationSubject("c", idOf(run)), text, &r)
	}
	return r, text, err
}

func run(job, restart uint32) slurm.RunID { return slurm.RunID{Job: job, Restart: restart} }

func vnis(r fabric.Reservation) []fabric.Tag { return r.Tags(fabric.VNI) }

func TestReserveTellsTheJobsRecord(t *testing.T) {
	b := newBench(t)
	b.change(func(w *world) { w.Jobs[7] = job{AdminComment: "of the site | x"} })
	r := b.mustStart(run(7, 0), "vni:2")
	if !slices.Equal(vnis(r), []fabric.Tag{1024, 1025}) {
		t.Errorf("%+v", r)
	}
	told, text, err := b.comment(run(7, 0))
	if err != nil || !slices.Equal(vnis(told), vnis(r)) || told.UID != 1000 {
		t.Errorf("the record says %+v, %v", told, err)
	}
	if !strings.HasPrefix(text, "of the site | x ") || strings.Contains(text, "1024") {
		t.Errorf("comment %q", text)
	}
	if again, err := b.reserve(run(7, 0), "vni:2"); err != nil || !slices.Equal(vnis(again), vnis(r)) {
		t.Errorf("a repeated call gives %v, %v", vnis(again), err)
	}
	if len(b.warnings) > 0 {
		t.Errorf("warnings %q", b.warnings)
	}
}

func TestARequeuedJobGetsOtherTags(t *testing.T) {
	b := newBench(t)
	b.mustStart(run(7, 0), "vni:1")
	b.change(func(w *world) {
		w.Jobs[7] = job{Restart: 1, State: "COMPLETING", Nodes: "n[1-2]", AdminComment: w.Jobs[7].AdminComment}
	})
	if err := b.Release(context.Background(), hook(run(7, 1))); err != nil { // as Slurm counts
		t.Fatal(err)
	}
	r := b.mustStart(run(7, 1), "vni:1")
	if !slices.Equal(vnis(r), []fabric.Tag{1025}) {
		t.Errorf("the second run has %v", vnis(r))
	}
	e := b.entries()
	if len(e) != 2 || e[0].Ended.IsZero() || !e[1].Ended.IsZero() {
		t.Errorf("%+v", e)
	}
	if _, text, err := b.comment(run(7, 1)); err != nil || strings.Count(text, letter.Prefix) != 1 {
		t.Errorf("%q, %v: want one letter", text, err)
	}
}

func TestTheRunBeforeEndsWithoutItsEpilog(t *testing.T) {
	b := newBench(t)
	b.mustStart(run(7, 0), "vni:1")
	b.mustStart(run(7, 1), "vni:1")
	if e := b.entries(); len(e) != 2 || e[0].Ended.IsZero() || !e[1].Ended.IsZero() {
		t.Errorf("%+v", e)
	}
}

// An EpilogSlurmctld that has outlived its slurmctld comes when the next run has begun.
func TestALateEpilogDoesNotEndTheNextRun(t *testing.T) {
	b := newBench(t)
	b.mustStart(run(7, 0), "vni:1")
	b.mustStart(run(7, 1), "vni:1")
	if err := b.Release(context.Background(), hook(run(7, 1))); err != nil {
		t.Fatal(err)
	}
	if e := b.entries(); !e[1].Ended.IsZero() {
		t.Error("a running job has ended")
	}
	b.end(run(7, 1))
	if e := b.entries(); e[1].Ended.IsZero() {
		t.Error("a job that is over has not ended")
	}
}

// Slurm's permit_job_expansion gives the nodes of one job to another that runs.
func TestNodesThatHaveJoinedAJobConfirm(t *testing.T) {
	b := newBench(t)
	b.mustStart(run(7, 0), "vni:1")
	grown := hook(run(7, 0))
	grown.Nodes = []string{"n1", "n2", "n3"}
	b.change(func(w *world) { delete(w.Jobs, 7) })
	if err := b.Release(t.Context(), grown); err != nil {
		t.Fatal(err)
	}
	b.state("n1", id(7, 0))
	b.state("n2", id(7, 0))
	b.sweep()
	if e := b.entries(); len(e) != 1 || !slices.Equal(e[0].Nodes, []string{"n3"}) {
		t.Fatalf("%+v: want n3 to confirm", e)
	}
	b.state("n3", id(7, 0))
	b.sweep()
	if e := b.entries(); len(e) > 0 {
		t.Errorf("%+v", e)
	}
}

func TestTagsComeBackWhenAllNodesHaveConfirmed(t *testing.T) {
	b := newBench(t)
	b.mustStart(run(7, 0), "vni:4")
	b.end(run(7, 0))
	b.state("n1", id(7, 0))
	b.sweep()
	if e := b.entries(); len(e) != 1 || !slices.Equal(e[0].Nodes, []string{"n2"}) {
		t.Fatalf("%+v", e)
	}
	b.state("n2", id(7, 1), id(6, 0)) // other runs
	b.sweep()
	if e := b.entries(); len(e) != 1 || !slices.Equal(e[0].Nodes, []string{"n2"}) {
		t.Fatalf("%+v", e)
	}
	b.state("n2", id(7, 0))
	b.sweep()
	if e := b.entries(); len(e) != 0 {
		t.Errorf("%+v", e)
	}
}

// slurmctld was killed before it had saved that the job began, and so was the agent on n1: no epilog
// comes there.
func TestANodeThatKnowsNothingOfARunIsAsked(t *testing.T) {
	b := newBench(t)
	b.mustStart(run(7, 0), "vni:1")
	b.end(run(7, 0))
	b.says(letter.Statement{Node: "n1"})
	b.says(letter.Statement{Node: "n2", Held: []letter.Holding{{Job: id(7, 0)}}})
	b.sweep()
	if asked := b.asked("n1"); len(asked) > 0 {
		t.Errorf("n1 is asked for %v, and the epilog may still come", asked)
	}
	b.now = b.now.Add(askAfter)
	b.sweep()
	b.sweep()
	if asked, held := b.asked("n1"), b.asked("n2"); !slices.Equal(asked, []journal.ID{id(7, 0)}) || len(held) > 0 {
		t.Errorf("n1 is asked for %v, and n2, which holds it, for %v", asked, held)
	}
	if comment := b.change(func(*world) {}).Nodes["n1"].Comment; letter.DropAsks(comment) != "rack 3" {
		t.Errorf("n1 has the comment %q, and the site's words are rack 3", comment)
	}
}

// slurmctld gives the number 8 again, and n1 takes back that it has released 8.0, while the controller
// asks it for 7.0. The word from before must not count at the end of 8.0.
func TestAQuestionDoesNotBringBackAnOlderLetter(t *testing.T) {
	b := newBench(t)
	b.mustStart(run(7, 0), "vni:1")
	b.end(run(7, 0))
	b.state("n1")
	retracted := b.change(func(*world) {}).Nodes["n1"]
	b.state("n1", id(8, 0))
	b.state("n2", id(7, 0), id(8, 0))
	b.now = b.now.Add(askAfter)
	b.change(func(w *world) { w.Next = map[string]node{"n1": retracted} })
	b.sweep()
	if asked := b.asked("n1"); !slices.Equal(asked, []journal.ID{id(7, 0)}) {
		t.Fatalf("n1 is asked for %v", asked)
	}
	b.mustStart(run(8, 0), "vni:1")
	b.end(run(8, 0))
	b.sweep()
	if e := b.entries(); len(e) != 2 || !slices.Equal(e[1].Nodes, []string{"n1"}) {
		t.Errorf("n1 has the tag of 8.0, and said before that it has not: %+v", e)
	}
}

// n1 confirms 8.0 between two looks of the controller. The first one must not take the word away.
func TestALetterThatNobodyHasHeardStays(t *testing.T) {
	b := newBench(t)
	b.mustStart(run(7, 0), "vni:1")
	b.mustStart(run(8, 0), "vni:1")
	b.end(run(7, 0))
	b.state("n1", id(8, 0))
	confirms := b.change(func(*world) {}).Nodes["n1"]
	b.state("n1")
	b.now = b.now.Add(askAfter)
	w, err := sweep{b.Controller}.ask(t.Context(), b.entries())
	if err != nil || len(w.unsaid["n1"]) != 1 {
		t.Fatalf("%+v, %v", w, err)
	}
	b.change(func(w *world) { w.Nodes["n1"] = confirms })
	if err := (sweep{b.Controller}).askAll(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if got := b.change(func(*world) {}).Nodes["n1"]; got != confirms {
		t.Errorf("n1 has the comment %q, and has written %q", got, confirms)
	}
}

// asked returns the runs for which a node is asked.
func (b *bench) asked(node string) []journal.ID {
	b.t.Helper()
	return letter.Asked(b.change(func(*world) {}).Nodes[node].Comment)
}

func TestAForgedStatementConfirmsNothing(t *testing.T) {
	b := newBench(t)
	b.mustStart(run(7, 0), "vni:1")
	b.end(run(7, 0))
	b.state("n1", id(7, 0))
	b.change(func(w *world) { w.Nodes["n2"] = node{Comment: w.Nodes["n1"].Comment} }) // n1's words
	b.sweep()
	if e := b.entries(); len(e) != 1 || !slices.Equal(e[0].Nodes, []string{"n2"}) {
		t.Errorf("%+v", e)
	}
}

func TestARebootConfirms(t *testing.T) {
	b := newBench(t)
	b.mustStart(run(7, 0), "vni:1")
	b.end(run(7, 0))
	held := []letter.Holding{{Job: id(7, 0)}}
	for _, node := range []string{"n1", "n2"} {
		b.says(letter.Statement{Node: node, Boot: "first", Held: held})
	}
	b.sweep()
	b.says(letter.Statement{Node: "n1", Boot: "second"})
	b.says(letter.Statement{Node: "n2", Boot: "second", Held: held}) // slurmctld had lost its word
	b.sweep()
	if e := b.entries(); len(e) != 1 || !slices.Equal(e[0].Nodes, []string{"n2"}) {
		t.Errorf("%+v", e)
	}
}

func TestSweepEndsJobsThatSlurmDoesNotHave(t *testing.T) {
	b := newBench(t)
	b.mustStart(run(7, 0), "vni:1")
	b.mustStart(run(8, 0), "vni:1")
	b.change(func(w *world) { delete(w.Jobs, 7) })
	b.change(func(w *world) { w.Down = true })
	if _, err := b.Sweep(context.Background()); err == nil {
		t.Error("no error, and slurmctld does not answer")
	}
	b.change(func(w *world) { w.Down = false })
	if e := b.entries(); !e[0].Ended.IsZero() || !e[1].Ended.IsZero() {
		t.Fatalf("jobs have ended because slurmctld does not answer: %+v", e)
	}
	b.sweep()
	if e := b.entries(); e[0].Ended.IsZero() || !e[1].Ended.IsZero() {
		t.Errorf("%+v", e)
	}
}

// Slurm's own plugin for Slingshot gives VNIs to steps, and nobody but slurm.conf knows which.
func TestVNIsOfSlurmsOwnPlugin(t *testing.T) {
	for name, tt := range map[string]struct {
		parameters, wish string
		refused          bool
	}{
		"all of the pool": {"", "vni:1", true},
		"the last one":    {"tcs=BEST_EFFORT,vnis=1029-4000", "vni:1", true},
		"others":          {"vnis=1030-4000", "vni:1", false},
		"no VNI wanted":   {"", "vlan:1,vms:1,vfs:1", false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.conf("ClusterName=c\nSwitchType=switch/hpe_slingshot\n")
			b.change(func(w *world) {
				w.Conf = "SwitchType = switch/hpe_slingshot\nSwitchParameters = " + tt.parameters + "\n"
			})
			_, err := b.start(run(7, 0), tt.wish)
			refused := err != nil && strings.Contains(err.Error(), "gives steps the VNIs ") && strings.Contains(err.Error(), "set vnis= in SwitchParameters")
			if refused != tt.refused || (err != nil) != tt.refused || tt.refused && len(b.entries()) > 0 {
				t.Errorf("error %v; the ledger has %+v", err, b.entries())
			}
		})
	}
}

func TestAnEmptyPool(t *testing.T) {
	for name, mode := range map[string]config.Exhausted{"fails": config.ExhaustedFail, "goes on without": config.ExhaustedEmpty} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.Site.Exhausted = mode
			b.mustStart(run(6, 0), "vni:4")
			r, err := b.start(run(7, 0), "vni:3")
			_, text, letterErr := b.comment(run(7, 0))
			if mode == config.ExhaustedEmpty {
				if err != nil || letterErr != nil || len(vnis(r)) != 0 || !slices.ContainsFunc(r.Grants, func(g fabric.Grant) bool { return strings.Contains(g.Why, "2") }) {
					t.Errorf("%+v, %v, %v", r, err, letterErr)
				}
				return
			}
			if !errors.Is(err, ledger.ErrExhausted) || !strings.Contains(text, failureBegin+"reserve tags for job 7.0: ") {
				t.Errorf("%v; the record says %q", err, text)
			}
			if w := b.change(func(*world) {}); len(w.Notified) != 1 || !strings.HasPrefix(w.Notified[0], "7 slurm-v: reserve tags for job 7.0: ") {
				t.Errorf("the owner reads %q", w.Notified)
			}
			b.change(func(w *world) { delete(w.Jobs, 6) })
			b.Site.Cooling = 0
			b.state("n1", id(6, 0))
			b.state("n2", id(6, 0))
			b.mustStart(run(7, 1), "vni:3") // by its own sweep
			if _, text, err := b.comment(run(7, 1)); err != nil || strings.Contains(text, failureBegin) {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}
