package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/cxi"
	"github.com/slurm-v/slurm-v/journal"
)

func TestAJobsTagsComeAndGo(t *testing.T) {
	d := newDesk(t, "FIRST_IDS=11,11,12,11")
	tags := d.up()
	want := []string{"cxi0:1027,1028", "cxi1:1027,1028", "cxi2:1027,1028", "cxi3:1027,1028"}
	if diff := cmp.Diff(want, d.services()); diff != "" {
		t.Fatalf("services differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"11", "11", "12", "11"}, ids(tags.Services)); diff != "" {
		t.Errorf("their numbers differ (-want +got):\n%s", diff)
	}
	text, err := os.ReadFile(filepath.Join(d.records.dir, "jobs/4217.0/environment"))
	if err != nil || !strings.Contains(string(text), "set SLINGSHOT_SVC_IDS=11,11,12,11\n") {
		t.Errorf("the file of variables has %s (%v)", text, err)
	}
	if info, _ := os.Stat(filepath.Join(d.records.dir, "jobs/4217.0/environment")); info.Mode() != 0o600 {
		t.Errorf("it has the mode %v", info.Mode())
	}
	boot, _ := journal.BootID()
	if again := d.up(); again.file(boot) != string(text) || !slices.Equal(d.services(), want) {
		t.Errorf("the second time there are %v, and the tags are %+v", d.services(), again)
	}
	if d.confirmed() != nil {
		t.Error("a job that begins is confirmed")
	}
	if err := d.Down(t.Context(), id, time.Second, nothingLeft); err != nil {
		t.Fatal(err)
	}
	d.mustBeClean()
}

func ids(services []cxi.Placed) (ids []string) {
	for _, s := range services {
		ids = append(ids, fmt.Sprint(s.ID))
	}
	return ids
}

// The controller and root have the key; users can write neither AdminComments nor letters.
// But somebody can copy a letter to another record.
func TestOnlyTheJobsOwnReservationCounts(t *testing.T) {
	with := func(edit func(*fabric.Reservation)) fabric.Reservation {
		r := reservation()
		edit(&r)
		return r
	}
	tests := map[string]struct {
		reservation fabric.Reservation
		cluster     string
		run         journal.ID
		wantErr     string // "" for none
	}{
		"its own":                {reservation(), "c1", id, ""},
		"another job's":          {reservation(), "c1", journal.ID{Job: 4218}, "no reservation of tags"},
		"of its run before":      {reservation(), "c1", journal.ID{Job: 4217, Restart: 1}, "no reservation of tags"},
		"of another cluster":     {reservation(), "c2", id, "no reservation of tags"},
		"sealed for another job": {with(func(r *fabric.Reservation) { r.Job.Job = 9 }), "c1", id, "is that of job 9.0 of user 1000 in c1"},
		"sealed for a later job": {with(func(r *fabric.Reservation) { r.Job.Job = 4218 }), "c1", id, "is that of job 4218.0 of user 1000 in c1"},
		"of the job's leader":    {with(func(r *fabric.Reservation) { r.Job.Job = 4216 }), "c1", id, ""},
		"sealed for another run": {with(func(r *fabric.Reservation) { r.Job.Restart = 1 }), "c1", id, "is that of job 4217.1 of user 1000"},
		"of another user":        {with(func(r *fabric.Reservation) { r.UID = 0 }), "c1", id, "is that of job 4217.0 of user 0 in c1"},
		"of a cluster like it":   {with(func(r *fabric.Reservation) { r.Cluster = "c2" }), "c1", id, "of user 1000 in c2"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.reserve(tt.reservation, tt.cluster, tt.run)
			_, err := d.Up(t.Context(), job)
			if tt.wantErr == "" {
				if err != nil || len(d.services()) != 4 {
					t.Fatalf("%v, services %v", err, d.services())
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("error = %v, want %q in it", err, tt.wantErr)
			}
			if len(d.services()) > 0 || d.has("node/fabric/jobs/4217.0/environment") {
				t.Errorf("it has got %v", d.services())
			}
		})
	}
}

// Users can write the restart count that the plugin has, and Slurm 22.05 has none for a step
// without the user's environment. slurmctld says which runs live, in its own numbers.
func TestTheJournalIsOfSlurmctldsRun(t *testing.T) {
	for name, plugins := range map[string]uint32{"a plugin without a count": 0, "a count of the user's": 7, "Slurm's count": 2} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			run := journal.ID{Job: 4217, Restart: 2}
			r := reservation()
			r.Job = run
			d.set("restart", "2")
			d.reserve(r, "c1", run)
			asked := job
			asked.ID.Restart = plugins
			if _, err := d.Up(t.Context(), asked); err != nil {
				t.Fatal(err)
			}
			done, err := d.Clean(t.Context(), Cleaning{}, running(run), nothingLeft)
			if err != nil || len(done) > 0 || len(d.services()) != 4 || d.confirmed() != nil {
				t.Errorf("%v, %v; services %v, confirmed %v", done, err, d.services(), d.confirmed())
			}
			if !d.has("node/fabric/jobs/4217.2/environment") {
				t.Error("there is no file of variables for the run")
			}
			if err := d.End(t.Context(), 4217, true, nothingLeft); err != nil || !slices.Equal(d.confirmed(), []journal.ID{run}) {
				t.Errorf("%v, confirmed %v", err, d.confirmed())
			}
		})
	}
}

func TestAJobWithoutReservation(t *testing.T) {
	d := newDesk(t)
	_, err := d.Up(t.Context(), job)
	if !errors.Is(err, errNoLetter) || !strings.Contains(err.Error(), "slurm.conf lacks PrologSlurmctld and EpilogSlurmctld") {
		t.Errorf("error = %v", err)
	}
	if tags, err := d.UpIfReserved(t.Context(), job); err != nil || len(tags.Services) > 0 {
		t.Errorf("if it needs none: %+v, %v", tags, err)
	}
	d.set("down", "")
	if _, err := d.UpIfReserved(t.Context(), job); err == nil {
		t.Error("a slurmctld that does not answer counts as no reservation")
	}
	d.cfg = config.Default().Fabric
	if tags, err := d.UpIfReserved(t.Context(), job); err != nil || len(tags.Services) > 0 {
		t.Errorf("at a site without pools: %+v, %v", tags, err)
	}
	if _, err := d.Up(t.Context(), job); !errors.Is(err, errNoLetter) || d.records.holds(id) {
		t.Errorf("a step that says it needs some there: %v", err)
	}
}

func TestAFailedStartLeavesNothing(t *testing.T) {
	d := newDesk(t)
	d.reserve(reservation(), "c1", id)
	d.fake.Set("ALLOC_ERRNO=1")
	if _, err := d.Up(t.Context(), job); err == nil || !strings.Contains(err.Error(), "set up the tags of job 4217.0") {
		t.Fatalf("error = %v", err)
	}
	if len(d.services()) > 0 || d.has("node/fabric/jobs/4217.0/environment") {
		t.Errorf("services %v", d.services())
	}
	d.fake.Set("ALLOC_ERRNO=0")
	d.up()
	if err := d.Down(t.Context(), id, 0, nothingLeft); err != nil {
		t.Error(err)
	}
	d.mustBeClean()
}

// A later step's failure must not take the services from the steps before.
func TestALaterFailureLeavesTheServicesAlone(t *testing.T) {
	d := newDesk(t)
	d.up()
	d.fake.Set("ALLOC_ERRNO=1")
	lib := d.lib()
	defer lib.Close()
	all := d.all()
	if err := lib.Clean(t.Context(), all[:3]); err != nil { // as if somebody had removed one by hand
		t.Fatal(err)
	}
	left := d.services()
	if _, err := d.Up(t.Context(), job); err == nil || len(left) == 4 {
		t.Fatalf("error = %v, services %v", err, left)
	}
	if got := d.services(); !slices.Equal(got, left) || !d.has("node/fabric/jobs/4217.0/environment") {
		t.Errorf("services %v, before %v", got, left)
	}
}

// The agent can be killed at every step of Up.
func TestDownUndoesWhatTheJournalNames(t *testing.T) {
	boot, _ := journal.BootID()
	for name, tt := range map[string]struct {
		services bool
		done     []bool
	}{
		"before the first record":   {false, nil},
		"before a service is made":  {false, []bool{false}},
		"after a service is made":   {true, []bool{true, true, true, false}},
		"after all are made":        {true, []bool{true, true, true, true}},
		"after they have been lost": {false, []bool{true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			if tt.services {
				d.up()
			}
			d.writeJournal(boot, tt.done...)
			if err := d.Down(t.Context(), id, 0, nothingLeft); err != nil {
				t.Error(err)
			}
			d.mustBeClean()
		})
	}
}

// An agent that is killed while it writes the file of variables leaves one that is not complete.
func TestDownAfterAKillInTheMidstOfTheVariables(t *testing.T) {
	d := newDesk(t)
	d.up()
	variables := d.records.environmentFile(id)
	if err := os.Rename(variables, variables+".new"); err != nil {
		t.Fatal(err)
	}
	if err := d.Down(t.Context(), id, 0, nothingLeft); err != nil {
		t.Error(err)
	}
	d.mustBeClean()
}

func TestServicesInUseAreNotConfirmed(t *testing.T) {
	d := newDesk(t, "BUSY=-1", "BUSY_CARD=1")
	d.up()
	err := d.End(t.Context(), 4217, true, nothingLeft)
	var busy *cxi.BusyError
	if !errors.As(err, &busy) || !errors.Is(err, ErrServices) || busy.Error() != "job 4217's VNIs 1027 and 1028 are still in use on cxi1" {
		t.Errorf("error = %v", err)
	}
	if got := d.services(); !slices.Equal(got, []string{"cxi1:1027,1028"}) || d.confirmed() != nil {
		t.Errorf("services %v, confirmed %v", got, d.confirmed())
	}
	tries := 0
	err = d.Linger(t.Context(), 4217, 1500*time.Millisecond, nothingLeft, func(still error) {
		if tries++; !errors.Is(still, ErrServices) {
			t.Errorf("try %d: %v", tries, still)
		}
	})
	if !errors.As(err, &busy) || tries == 0 {
		t.Errorf("after a while and %d tries: %v", tries, err)
	}
	d.fake.Set("BUSY=0")
	if err := d.Linger(t.Context(), 4217, time.Minute, nothingLeft, unheard); err != nil {
		t.Error(err)
	}
	d.mustBeClean()
}

func TestAJobIsConfirmedOnceNothingOfItIsLeft(t *testing.T) {
	d := newDesk(t)
	d.up()
	stuck := errors.New("VF 3 of ens1f0 could not be restored")
	if err := d.Down(t.Context(), id, 0, func(journal.ID) error { return stuck }); !errors.Is(err, stuck) {
		t.Errorf("error = %v", err)
	}
	if len(d.services()) > 0 || d.confirmed() != nil {
		t.Errorf("services %v, confirmed %v", d.services(), d.confirmed())
	}
	if done, err := d.Clean(t.Context(), Cleaning{}, running(), nothingLeft); err != nil || len(done) != 1 {
		t.Errorf("clean: %v, %v", done, err)
	}
	d.mustBeClean()
}

func TestALostConfirmationIsRepeated(t *testing.T) {
	d := newDesk(t)
	d.up()
	d.set("down", "")
	if err := d.Down(d.whileUnheard(), id, 0, nothingLeft); err == nil {
		t.Error("a slurmctld that does not answer is told")
	}
	if len(d.services()) > 0 || d.confirmed() != nil {
		t.Errorf("services %v, confirmed %v", d.services(), d.confirmed())
	}
	d.unset("down")
	for range 2 {
		if _, err := d.Clean(t.Context(), Cleaning{}, nil, nothingLeft); err != nil {
			t.Error(err)
		}
	}
	d.mustBeClean()
	if told, _ := os.ReadFile(filepath.Join(d.dir, "told")); string(told) != "told\ntold\n" { // the boot, and the confirmation
		t.Errorf("slurmctld was told %q", told)
	}
}

// Administrators write the node's Comment, too.
func TestAConfirmationThatIsOverwrittenIsRepeated(t *testing.T) {
	d := newDesk(t)
	d.up()
	if err := d.Down(t.Context(), id, 0, nothingLeft); err != nil {
		t.Fatal(err)
	}
	for _, comment := range []string{"new fans", "new fans, and a slurm-v:" + strings.Repeat("A", 60) + " of somebody"} {
		d.set("comment", comment)
		for range 2 {
			if _, err := d.Clean(t.Context(), Cleaning{}, nil, nothingLeft); err != nil {
				t.Error(err)
			}
		}
		d.mustBeClean()
	}
	if told, _ := os.ReadFile(filepath.Join(d.dir, "told")); string(told) != "told\ntold\ntold\ntold\n" { // the boot, and the confirmation three times
		t.Errorf("slurmctld was told %q", told)
	}
}

// A confirmation must not hold for a job that has begun again.
func TestAJobThatBeginsAgainIsNotConfirmed(t *testing.T) {
	d := newDesk(t)
	d.up()
	if err := d.Down(t.Context(), id, 0, nothingLeft); err != nil {
		t.Fatal(err)
	}
	d.mustBeClean()
	d.up()
	if got := d.confirmed(); len(got) > 0 {
		t.Errorf("confirmed: %v", got)
	}
}

// Of two tasks that begin at once, the second finds that the first has taken back the confirmation.
// The controller has not heard of that.
func TestNoTagsAreMadeBeforeTheRetractionIsTold(t *testing.T) {
	d := newDesk(t)
	d.up()
	if err := d.Down(t.Context(), id, 0, nothingLeft); err != nil {
		t.Fatal(err)
	}
	d.set("deaf", "")
	for _, task := range []string{"first", "second"} {
		if err := d.words.retract(d.whileUnheard(), id); err == nil {
			t.Errorf("the %s task goes on", task)
		}
		d.unset("unheard")
	}
	d.unset("deaf")
	if err := d.words.retract(t.Context(), id); err != nil || len(d.confirmed()) > 0 {
		t.Errorf("%v, confirmed: %v", err, d.confirmed())
	}
}

// The job ends, and the node confirms, after a task has read the job's record.
func TestARunThatIsConfirmedMeanwhileGetsNoTags(t *testing.T) {
	for name, end := range map[string]func(*desk){
		"it has ended":     func(d *desk) { d.set("state", "COMPLETED") },
		"it was requeued":  func(d *desk) { d.set("restart", "1") },
		"it is not listed": func(d *desk) { d.set("forgotten", "") },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.reserve(reservation(), "c1", id)
			if err := d.Down(t.Context(), id, 0, nothingLeft); err != nil {
				t.Fatal(err)
			}
			end(d)
			if _, err := d.Node.up(t.Context(), job, reservation()); err == nil || len(d.services()) > 0 {
				t.Errorf("error %v, services %v", err, d.services())
			}
			if !slices.Equal(d.confirmed(), []journal.ID{id}) {
				t.Errorf("confirmed %v", d.confirmed())
			}
		})
	}
}

func TestAConfirmationAddsToThoseBefore(t *testing.T) {
	d := newDesk(t)
	var want []journal.ID
	for n := range uint32(3) {
		want = append(want, journal.ID{Job: 10 + n})
		if err := d.Down(t.Context(), want[n], 0, nothingLeft); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, d.confirmed()); diff != "" {
		t.Errorf("confirmations differ (-want +got):\n%s", diff)
	}
}

func TestANodeWithoutSlingshot(t *testing.T) {
	d := newDesk(t)
	d.root = t.TempDir()
	d.cfg.VNI.LibCXI = "/no/libcxi.so.1"
	if tags := d.up(); len(tags.Services) > 0 {
		t.Errorf("services %v", tags.Services)
	}
	if _, err := d.Clean(t.Context(), Cleaning{}, running(id), nothingLeft); err != nil {
		t.Error(err)
	}
	if err := os.MkdirAll(filepath.Join(d.root, "sys/class/cxi/cxi0"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Up(t.Context(), job); err == nil || !strings.Contains(err.Error(), "load /no/libcxi.so.1") {
		t.Errorf("with a card, but without libcxi: %v", err)
	}
}

func TestTheUserHearsWhatIsMissing(t *testing.T) {
	d := newDesk(t, "DEFAULT=1")
	r := reservation()
	r.Grants = append(r.Grants,
		fabric.Grant{Pool: "pkey", Kind: fabric.PKey, Why: "failed to reserve 1 P_Key (0 available)"},
		fabric.Grant{Pool: "more", Kind: fabric.VNI, Why: fabric.WhyNone})
	d.reserve(r, "c1", id)
	tags, err := d.Up(t.Context(), job)
	if err != nil || len(tags.Warnings) != 2 || tags.Warnings[0] != "job 4217 has no P_Key: failed to reserve 1 P_Key (0 available)" ||
		!strings.Contains(tags.Warnings[1], "the default CXI service is enabled") {
		t.Errorf("%q, %v", tags.Warnings, err)
	}
}
