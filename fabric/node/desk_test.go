package node

import (
	"context"
	"encoding/json"
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
	"github.com/slurm-v/slurm-v/fabric/cxi"
	"github.com/slurm-v/slurm-v/fabric/cxi/cxitest"
	"github.com/slurm-v/slurm-v/fabric/letter"
	"github.com/slurm-v/slurm-v/internal/durable"
	"github.com/slurm-v/slurm-v/internal/filetest"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
)

// A desk is node n1 of the cluster c1, with the cards of a fake libcxi and commands of
// Slurm that answer from files: admin, restart and words are about job 4217, leader is the
// state of job 4216, of which 4217 may be a component, comment is the node's, and down, forgotten and deaf are what slurmctld is. It leaves unheard when it was asked in vain.
type desk struct {
	*Node
	t    *testing.T
	fake *cxitest.Fake
	dir  string
	key  letter.Key
}

// The commands as scripts. What ends a record follows the last field of --Format.
const (
	fakeSqueue = `for a; do case $a in --Format=*) end=${a##*admin_comment:0};; esac; done
if test -e forgotten; then echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1; fi
printf '%s%s\n' "$(cat number)|4217|$(cat het)|$(cat restart)|$(cat state)|1700000000|n1|$(cat admin)" "$end"
printf '%s%s\n' "4216|4216|4216|$(cat restart)|$(cat leader)|1700000000|n1|" "$end"`
	fakeSinfo = `for a; do case $a in --Format=*) end=${a##*comment:0};; esac; done
printf '%s%s\n' "n1|$(cat comment)" "$end"`
	fakeScontrol = `case "$*" in
'show config') echo 'ClusterName             = c1'; if test -e switch; then echo "SwitchType              = $(cat switch)"; fi ;;
'update nodename=n1 comment='*) if test -e deaf; then : > unheard; exit 1; fi; echo told >> told; printf '%s' "${3#comment=}" > comment ;;
*) echo "scontrol $*" >&2; exit 1 ;;
esac`
)

func newDesk(t *testing.T, settings ...string) *desk {
	t.Helper()
	d := &desk{t: t, dir: t.TempDir(), fake: cxitest.New(t, settings...)}
	for name, script := range map[string]string{"squeue": fakeSqueue, "sinfo": fakeSinfo, "scontrol": fakeScontrol} {
		text := fmt.Sprintf("#!/bin/sh\ncd '%s'\nif test -e down; then : > unheard; echo 'Unable to contact slurm controller' >&2; exit 1; fi\n%s\n", d.dir, script)
		filetest.Write(t, filepath.Join(d.dir, name), text)
		if err := os.Chmod(filepath.Join(d.dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d.set("admin", "ask bob")
	d.set("restart", "0")
	d.set("state", "RUNNING")
	d.set("het", "N/A")
	d.set("leader", "COMPLETING")
	d.set("number", "4217")
	d.set("comment", "new fans")
	d.addKey()
	cfg := config.Default()
	cfg.Paths.State = filepath.Join(d.dir, "node")
	cfg.Fabric.Key = filepath.Join(d.dir, "key")
	cfg.Fabric.VNI.LibCXI = d.fake.Path
	cfg.Fabric.VNI.Pool, cfg.Fabric.VLAN.Pool = config.Tags{{First: 1024, Last: 1100}}, config.Tags{{First: 2000, Last: 2999}}
	d.Node = Open(cfg, "n1", slurm.Client{Bin: d.dir})
	return d
}

func (d *desk) addKey() {
	d.t.Helper()
	path := filepath.Join(d.dir, "key")
	err := os.WriteFile(path, []byte(letter.NewKey()+"\n"), 0o600)
	if err == nil {
		d.key, err = letter.Load(path)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) set(file, text string) { filetest.Write(d.t, filepath.Join(d.dir, file), text) }

func (d *desk) unset(file string) {
	d.t.Helper()
	if err := os.Remove(filepath.Join(d.dir, file)); err != nil {
		d.t.Fatal(err)
	}
}

// whileUnheard is a context that ends once slurmctld was asked in vain.
func (d *desk) whileUnheard() context.Context {
	ctx, end := context.WithCancel(d.t.Context())
	go func() {
		defer end()
		for ctx.Err() == nil && !d.has("unheard") {
			time.Sleep(time.Millisecond)
		}
	}()
	return ctx
}

func (d *desk) has(file string) bool {
	_, err := os.Stat(filepath.Join(d.dir, file))
	return err == nil
}

var id = journal.ID{Job: 4217}

var job = Job{ID: id, UID: 1000, GID: 100, Step: 3, Cores: 8}

// reservation is what the controller gives to job.
func reservation() fabric.Reservation {
	return fabric.Reservation{Cluster: "c1", Job: id, UID: 1000, Grants: []fabric.Grant{
		{Pool: "vlan", Kind: fabric.VLAN, Tags: []fabric.Tag{2001}},
		{Pool: "vni", Kind: fabric.VNI, Tags: []fabric.Tag{1027, 1028}},
	}}
}

// reserve writes a reservation into the job's record, sealed for a run of the job.
func (d *desk) reserve(r fabric.Reservation, cluster string, run journal.ID) {
	d.t.Helper()
	text, err := letter.Seal(d.key, letter.ReservationSubject(cluster, run), r)
	if err != nil {
		d.t.Fatal(err)
	}
	d.set("admin", letter.PutBlock("ask bob", text))
}

// up sets up the tags of job.
func (d *desk) up() Tags {
	d.t.Helper()
	d.reserve(reservation(), "c1", id)
	tags, err := d.Up(d.t.Context(), job)
	if err != nil {
		d.t.Fatal(err)
	}
	return tags
}

// upOf sets up the tags of a component, about which squeue answers as about job.
func (d *desk) upOf(component Job) (Tags, error) {
	d.set("number", fmt.Sprint(component.ID.Job))
	return d.Up(d.t.Context(), component)
}

// services are those of jobs on all cards, as "cxi0:1027,1028".
func (d *desk) services() (found []string) {
	d.t.Helper()
	for _, s := range d.all() {
		if s.ID != cxi.DefaultService && !s.System {
			found = append(found, s.Card+":"+texts(fabric.VNI, s.VNIs))
		}
	}
	return found
}

func (d *desk) all() []cxi.Placed {
	d.t.Helper()
	lib := d.lib()
	defer lib.Close()
	all, err := lib.All()
	if err != nil {
		d.t.Fatal(err)
	}
	return all
}

func (d *desk) lib() *cxi.Library {
	d.t.Helper()
	lib, err := cxi.Open(d.fake.Path)
	if err != nil {
		d.t.Fatal(err)
	}
	return lib
}

// make makes services of some job, about which the node has no journal.
func (d *desk) make(vni fabric.Tag) {
	d.t.Helper()
	lib := d.lib()
	defer lib.Close()
	cards, err := lib.Devices()
	if err == nil {
		_, err = lib.Make(cards[0], cxi.Job{ID: journal.ID{Job: 1}, UID: 7, VNIs: []fabric.Tag{vni}, Cores: 1})
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// confirmed is what slurmctld knows that the node has released.
func (d *desk) confirmed() []journal.ID {
	d.t.Helper()
	return d.statement().Released
}

// statement is what the node has said to slurmctld.
func (d *desk) statement() (s letter.Statement) {
	d.t.Helper()
	comment, err := os.ReadFile(filepath.Join(d.dir, "comment"))
	if err != nil {
		d.t.Fatal(err)
	}
	if !strings.HasPrefix(string(comment), "new fans") {
		d.t.Errorf("the site's words are gone: %s", comment)
	}
	if err := letter.Find(d.key, letter.NodeSubject("c1", "n1"), string(comment), &s); err != nil {
		if errors.Is(err, letter.ErrNone) {
			return letter.Statement{}
		}
		d.t.Fatal(err)
	}
	if boot, _ := journal.BootID(); s.Node != "n1" || s.Boot != boot {
		d.t.Errorf("node %s in boot %s says so", s.Node, s.Boot)
	}
	return s
}

// mustBeClean fails unless the node has nothing of the job, and slurmctld knows that.
func (d *desk) mustBeClean() {
	d.t.Helper()
	if left := d.services(); len(left) > 0 {
		d.t.Errorf("services are left: %v", left)
	}
	if got := d.confirmed(); !slices.Equal(got, []journal.ID{id}) {
		d.t.Errorf("confirmed: %v", got)
	}
	d.mustHoldNothing()
}

func (d *desk) mustHoldNothing() {
	d.t.Helper()
	ids, err := journal.List(d.records.dir)
	pending, pendingErr := d.pending.list()
	locks, _ := filepath.Glob(filepath.Join(d.records.dir, "[el]*s", "*"))
	if len(ids)+len(pending)+len(locks) > 0 || err != nil || pendingErr != nil {
		d.t.Errorf("the node holds %v, %v and %v (%v, %v)", ids, pending, locks, err, pendingErr)
	}
}

// nothingLeft says that VMs have left nothing.
func nothingLeft(journal.ID) error { return nil }

// unheard is told of tries that nobody asks about.
func unheard(error) {}

// running says which runs of jobs are running.
func running(ids ...journal.ID) Running {
	return func(context.Context) (map[journal.ID]bool, error) {
		live := map[journal.ID]bool{}
		for _, id := range ids {
			live[id] = true
		}
		return live, nil
	}
}

// writeJournal writes a journal as an agent leaves it that is killed, in some boot. done
// says of each record whether it is done.
func (d *desk) writeJournal(boot string, done ...bool) {
	d.t.Helper()
	entries := []map[string]any{{"op": "header", "header": journal.Header{Version: 1, Job: id.Job, UID: 1000, Node: "n1", BootID: boot}}}
	for i, done := range done {
		card := fmt.Sprintf("cxi%d", i)
		entries = append(entries, map[string]any{"op": "intend", "kind": recordService, "name": card, "data": holding{1000, []fabric.Tag{1027, 1028}}})
		if done {
			entries = append(entries, map[string]any{"op": "done", "kind": recordService, "name": card})
		}
	}
	var text []byte
	for _, e := range entries {
		line, err := json.Marshal(e)
		if err != nil {
			d.t.Fatal(err)
		}
		text = append(text, durable.Line(line)...)
	}
	filetest.Write(d.t, filepath.Join(journal.Dir(d.records.dir, id), "journal"), string(text))
}
