package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/ledger"
	"github.com/slurm-v/slurm-v/fabric/letter"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
)

func site() config.Fabric {
	f := config.Default().Fabric
	f.VNI.Pool = config.Tags{{First: 1024, Last: 1029}}
	f.VLAN.Pool = config.Tags{{First: 2000, Last: 2003}}
	return f
}

func id(job, restart uint32) journal.ID { return journal.ID{Job: job, Restart: restart} }

func TestRequestOf(t *testing.T) {
	onlyGPU := site()
	onlyGPU.VNI.Pool = nil
	onlyGPU.Pool = map[string]config.TagPool{"g": {Kind: config.TagVNI, Pool: config.Tags{{First: 5000, Last: 5001}}, PerJob: 2, Partitions: []string{"gpu"}}}
	lenient := onlyGPU
	lenient.Exhausted = config.ExhaustedEmpty
	type want struct {
		counts  map[string]int
		whys    map[string]string
		missing []fabric.Kind
		classes []fabric.Class
	}
	tests := map[string]struct {
		site      config.Fabric
		partition string
		wish      string
		want      want
		fails     bool
	}{
		"as many as the site gives": {site(), "main", "vlan:1,vni,vms:1,vfs:1", want{counts: map[string]int{"vlan": 1, "vni": 1}}, false},
		"as many as the user says":  {site(), "main", "vni:4", want{counts: map[string]int{"vni": 4, "vlan": 0}, whys: map[string]string{"vlan": fabric.WhyNone}}, false},
		"none requested":            {site(), "main", "vni:0", want{counts: map[string]int{"vni": 0}, whys: map[string]string{"vni": fabric.WhyNone}}, false},
		"off":                       {site(), "main", "off", want{counts: map[string]int{"vni": 0}, whys: map[string]string{"vni": fabric.WhyOff}}, false},
		"the partition's own pool":  {onlyGPU, "gpu", "vni", want{counts: map[string]int{"g": 2}}, false},
		"a partition without, and the user does not say": {onlyGPU, "main", "vni", want{missing: []fabric.Kind{fabric.VNI}}, false},
		"a partition without, and the user says":         {onlyGPU, "main", "vni:1", want{}, true},
		"the same where jobs may go on without":          {lenient, "main", "vni:1", want{missing: []fabric.Kind{fabric.VNI}}, false},
		"a class":                                        {site(), "main", "vni,tc:low-latency", want{counts: map[string]int{"vni": 1}, classes: []fabric.Class{fabric.LowLatency}}, false},
		"a forged class that the site does not have":     {site(), "main", "vni,tc:dedicated", want{}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w, err := fabric.ParseWish(tt.wish)
			if err != nil {
				t.Fatal(err)
			}
			h := slurm.Hook{Cluster: "c", Job: slurm.RunID{Job: 7}, UID: 5, Partition: tt.partition, Nodes: []string{"n1"}}
			q, missing, err := requestOf(tt.site, config.Default().Limits, h, w)
			if tt.fails {
				if err == nil {
					t.Fatal("no error")
				}
				return
			}
			if err != nil || q.Reservation.Job != id(7, 0) || q.Reservation.UID != 5 || q.Reservation.Cluster != "c" {
				t.Fatalf("%+v, %v", q, err)
			}
			for _, want := range q.Wants {
				n, asked := tt.want.counts[want.Pool.Name]
				if asked && n != want.Count {
					t.Errorf("%d of pool %s, want %d", want.Count, want.Pool.Name, n)
				}
				if why := tt.want.whys[want.Pool.Name]; why != "" && why != want.Why {
					t.Errorf("why %q, want %q", want.Why, why)
				}
			}
			for pool := range tt.want.counts {
				if !slices.ContainsFunc(q.Wants, func(w ledger.Want) bool { return w.Pool.Name == pool }) {
					t.Errorf("nothing is asked of pool %s", pool)
				}
			}
			var kinds []fabric.Kind
			for _, g := range missing {
				kinds = append(kinds, g.Kind)
				if g.Why == "" || len(g.Tags) > 0 {
					t.Errorf("%+v", g)
				}
			}
			if !slices.Equal(kinds, tt.want.missing) {
				t.Errorf("missing %v, want %v", kinds, tt.want.missing)
			}
			if tt.want.classes != nil && !slices.Equal(q.Reservation.Classes, tt.want.classes) {
				t.Errorf("classes %v, want %v", q.Reservation.Classes, tt.want.classes)
			}
		})
	}
}

func TestPortsOf(t *testing.T) {
	most := config.Limits{VMPerNode: 64, VFPerVM: 16}
	vms, vfs, err := portsOf(2, most, fabric.Wish{VMs: 3, VFs: 2})
	if vms != 6 || vfs != 2 || err != nil {
		t.Errorf("%d, %d, %v", vms, vfs, err)
	}
	ports := fabric.Reservation{Job: id(17, 0), VMs: vms, VFs: vfs}.Ports()
	if len(ports) != 12 || ports[11] != fabric.PortGUID(17, 5, 1) || ports[0] != fabric.PortGUID(17, 0, 0) {
		t.Errorf("%v", ports)
	}
	if _, _, err := portsOf(2, most, fabric.Wish{VMs: 64, VFs: 16}); err != nil {
		t.Errorf("as many as the site allows: %v", err)
	}
	if _, _, err := portsOf(257, most, fabric.Wish{VMs: 64, VFs: 1}); err == nil {
		t.Error("16,448 VMs all have GUIDs")
	}
	for _, forged := range []fabric.Wish{{VMs: 1024, VFs: 1}, {VMs: 1, VFs: 63}} {
		if _, _, err := portsOf(2, most, forged); err == nil || !strings.Contains(err.Error(), "vm_per_node and vf_per_vm in [limits]") {
			t.Errorf("%+v: error %v", forged, err)
		}
	}
}

func TestNextTry(t *testing.T) {
	now := time.Unix(1000, 0)
	deadline := now.Add(10 * time.Second)
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	pool := func(states ...ledger.State) []ledger.PoolState {
		p := ledger.PoolState{Pool: fabric.Pool{Name: "vni", Tags: []fabric.Range{{First: 1, Last: 9}}}}
		for _, s := range states {
			p.Taken = append(p.Taken, ledger.TagState{Tag: 1, State: s})
		}
		return []ledger.PoolState{p}
	}
	tests := map[string]struct {
		err    error
		states []ledger.PoolState
		at     time.Time
		worth  bool
		cools  int // seconds
	}{
		"another error":                 {errors.New("no"), nil, time.Time{}, false, 0},
		"when enough have cooled":       {&ledger.ExhaustedError{Pool: "vni", Want: 1, Next: at(4)}, nil, at(4), true, 0},
		"nodes still have to confirm":   {&ledger.ExhaustedError{Pool: "vni", Want: 2}, pool(ledger.Releasing, ledger.Cooling), at(1), true, 0},
		"too few are being given back":  {&ledger.ExhaustedError{Pool: "vni", Want: 2}, pool(ledger.Releasing, ledger.Reserved), at(1), false, 0},
		"quarantine does not come back": {&ledger.ExhaustedError{Pool: "vni", Want: 1}, pool(ledger.Quarantined), at(1), false, 0},
		"cooling lasts too long":        {&ledger.ExhaustedError{Pool: "vni", Want: 1, Next: at(60)}, pool(ledger.Reserved), at(1), false, 0},
		"another pool's do not help":    {&ledger.ExhaustedError{Pool: "g", Want: 1}, pool(ledger.Releasing), at(1), false, 0},
		"nor do those outside of its ranges": {&ledger.ExhaustedError{Pool: "vni", Want: 1}, []ledger.PoolState{{
			Pool: fabric.Pool{Name: "vni"}, Taken: []ledger.TagState{{Tag: 1, State: ledger.Releasing}},
		}}, at(1), false, 0},
		"some are free, and some on them": {&ledger.ExhaustedError{Pool: "vni", Want: 2, Free: 1}, pool(ledger.Releasing), at(1), true, 0},
		"those cool in time":              {&ledger.ExhaustedError{Pool: "vni", Want: 1}, pool(ledger.Releasing), at(1), true, 8},
		"those would cool for too long":   {&ledger.ExhaustedError{Pool: "vni", Want: 1}, pool(ledger.Releasing), at(1), false, 9},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, worth := nextTry(tt.err, tt.states, time.Duration(tt.cools)*time.Second, now, deadline)
			if worth != tt.worth || worth && !got.Equal(tt.at) {
				t.Errorf("%v, %v; want %v, %v", got, worth, tt.at, tt.worth)
			}
		})
	}
	if _, worth := nextTry(&ledger.ExhaustedError{Pool: "vni", Want: 1}, pool(ledger.Releasing), 0, deadline, deadline); worth {
		t.Error("a job waits beyond the deadline")
	}
}

func entry(job journal.ID, ended bool, nodes ...string) ledger.Entry {
	e := ledger.Entry{Reservation: fabric.Reservation{Job: job}, Nodes: nodes, State: ledger.Reserved}
	if ended {
		e.State, e.Ended = ledger.Releasing, time.Unix(1, 0)
	}
	return e
}

func TestEndedBy(t *testing.T) {
	tests := map[string]struct {
		entries []ledger.Entry
		at      journal.ID
		want    []journal.ID
	}{
		"the run itself": {[]ledger.Entry{entry(id(7, 0), false)}, id(7, 0), []journal.ID{id(7, 0)}},
		"the run before, if Slurm has counted its restart": {[]ledger.Entry{entry(id(7, 0), false)}, id(7, 1), []journal.ID{id(7, 0)}},
		"not the run before, which has ended":              {[]ledger.Entry{entry(id(7, 0), true), entry(id(7, 1), false)}, id(7, 1), []journal.ID{id(7, 1)}},
		"one that is unknown":                              {nil, id(7, 1), []journal.ID{id(7, 1)}},
		"never a newer run":                                {[]ledger.Entry{entry(id(7, 2), false)}, id(7, 1), []journal.ID{id(7, 1)}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := endedBy(tt.entries, tt.at); !slices.Equal(got, tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

func TestStale(t *testing.T) {
	entries := []ledger.Entry{entry(id(7, 0), false), entry(id(8, 1), false), entry(id(9, 0), true)}
	if got := stale(entries, []slurm.RunID{{Job: 7}, {Job: 8, Restart: 1}}); len(got) != 0 {
		t.Errorf("%v are over, and run", got)
	}
	got := stale(entries, []slurm.RunID{{Job: 7}, {Job: 8, Restart: 2}})
	if !slices.Equal(got, []journal.ID{id(8, 1)}) {
		t.Errorf("%v are over; want the run before a restart", got)
	}
}

// What a node says before a run has ended, it may have said before the run began.
func TestConfirmationsAreOfEndedRuns(t *testing.T) {
	entries := []ledger.Entry{entry(id(7, 0), true, "n1", "n2"), entry(id(8, 0), false, "n1"), entry(id(9, 0), true, "n2")}
	s := letter.Statement{Node: "n1", Released: []journal.ID{id(7, 0), id(8, 0), id(9, 0), id(7, 1)}}
	want := []ledger.Confirmation{{Job: id(7, 0), Node: "n1"}}
	if diff := cmp.Diff(want, confirmations(entries, s)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := silent(entries); !slices.Equal(got, []string{"n1", "n2"}) {
		t.Errorf("silent: %v", got)
	}
}

// What is read before a run has ended says nothing about a boot after its end.
func TestBootsAreOfEndedRuns(t *testing.T) {
	entries := []ledger.Entry{entry(id(7, 0), true, "n1"), entry(id(8, 0), false, "n1"), entry(id(9, 0), true, "n2"), entry(id(10, 0), true, "n1")}
	s := letter.Statement{Node: "n1", Boot: "b", Held: []letter.Holding{{Job: id(10, 0)}}}
	want := []ledger.Boot{{Job: id(7, 0), Node: "n1", ID: "b"}, {Job: id(10, 0), Node: "n1", ID: "b", Holds: true}}
	if diff := cmp.Diff(want, boots(entries, s)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAbandoned(t *testing.T) {
	with := func(e ledger.Entry, tags ...fabric.Tag) ledger.Entry {
		e.Reservation.Grants = []fabric.Grant{{Kind: fabric.PKey, Tags: tags}}
		return e
	}
	gone := with(entry(id(7, 0), true), 5, 6)
	if got := abandoned(gone, []ledger.Entry{gone, with(entry(id(8, 0), true), 5)}); !slices.Equal(got, []fabric.Tag{5, 6}) {
		t.Errorf("%v, want both: the other job has ended, too", got)
	}
	if got := abandoned(gone, []ledger.Entry{gone, with(entry(id(8, 0), false), 5)}); !slices.Equal(got, []fabric.Tag{6}) {
		t.Errorf("%v, want none that a running job has", got)
	}
}

func TestComments(t *testing.T) {
	tests := map[string]struct{ got, want string }{
		"a sentence":           {withFailure("", "no VNI [is] free"), "[slurm-v: no VNI (is) free]"},
		"beside other words":   {withFailure("of the site", "no"), "of the site [slurm-v: no]"},
		"in place of an older": {withFailure("a [slurm-v: old] b", "new"), "a b [slurm-v: new]"},
		"the next run's":       {withoutFailure("a [slurm-v: old] b"), "a b"},
		"without end":          {withoutFailure("a [slurm-v: cut"), "a"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.got != tt.want {
				t.Errorf("%q, want %q", tt.got, tt.want)
			}
		})
	}
}

func TestRedacted(t *testing.T) {
	r := fabric.Reservation{Collectives: &fabric.Collectives{Session: "c-1", Token: "secret"}}
	if got := redacted(r); got.Collectives.Token != "" || got.Collectives.Session != "c-1" {
		t.Errorf("%+v", got.Collectives)
	}
	if r.Collectives.Token != "secret" {
		t.Error("the original has lost its token")
	}
}

func TestToAsk(t *testing.T) {
	now := time.Unix(1, 0).Add(askAfter)
	var many []string
	for i := range 2 * askAtOnce {
		many = append(many, fmt.Sprintf("m%d", i))
	}
	entries := []ledger.Entry{
		entry(id(7, 0), true, "n1", "n2", "n3", "n4", "n5", "gone"), entry(id(8, 0), false, "n1"), entry(id(9, 0), true, "n1"), entry(id(10, 0), true, many...),
	}
	entries[2].Ended = now
	records := map[string]slurm.NodeRecord{"n1": {Name: "n1"}, "n2": {Name: "n2"}, "n3": {Name: "n3"}, "n4": {Name: "n4", Comment: letter.PutAsks("rack 3", []journal.ID{id(7, 0)})}, "n5": {Name: "n5", State: []string{"DOWN", "DRAIN"}}}
	said := []letter.Statement{{Node: "n2", Held: []letter.Holding{{Job: id(7, 0)}}}, {Node: "n3", Released: []journal.ID{id(7, 0)}}}
	want := map[string][]journal.ID{"n1": {id(7, 0)}}
	if diff := cmp.Diff(want, toAsk(entries, records, said, now)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	said = append(said, letter.Statement{Node: "n1", Released: []journal.ID{id(8, 0)}})
	if got := toAsk(entries, records, said, now); len(got) > 0 {
		t.Errorf("%v are asked, and n1's word about a run that is yet to end would go", got)
	}
	for _, name := range many {
		records[name] = slurm.NodeRecord{Name: name}
	}
	if got := toAsk(entries, records, said, now); len(got) != askAtOnce {
		t.Errorf("%d nodes are asked at once", len(got))
	}
}
