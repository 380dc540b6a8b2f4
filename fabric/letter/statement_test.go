package letter

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

const boot = "3f9e9d5a-0c4b-4f8b-9d55-6d1d2c1f7c11"

func TestReleases(t *testing.T) {
	a, b, c := journal.ID{Job: 1}, journal.ID{Job: 2}, journal.ID{Job: 1, Restart: 1}
	tests := map[string]struct{ got, want []journal.ID }{
		"the first":                        {Statement{}.With(a).Released, []journal.ID{a}},
		"the newest last":                  {Statement{}.With(b).With(a).Released, []journal.ID{b, a}},
		"a job twice":                      {Statement{}.With(a).With(b).With(a).Released, []journal.ID{b, a}},
		"another run of a job":             {Statement{}.With(a).With(c).Released, []journal.ID{a, c}},
		"a job that gets tags":             {Statement{}.With(a).With(c).Without(a).Released, []journal.ID{c}},
		"a job that was not named":         {Statement{}.With(a).Without(b).Released, []journal.ID{a}},
		"the statement before is the same": {before(a, b), []journal.ID{a, b}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.got); diff != "" {
				t.Errorf("releases differ (-want +got):\n%s", diff)
			}
		})
	}
}

// before returns the releases of a statement from which others were made.
func before(ids ...journal.ID) []journal.ID {
	s := Statement{Released: ids}
	s.With(ids[0])
	s.Without(ids[0])
	return s.Released
}

// A node with 128 cores may end jobs of one core by the hundred between two looks of the
// controller.
func TestAStatementNamesAllThatALetterHasRoomFor(t *testing.T) {
	tests := map[string]struct {
		first, restart uint32
		least          int
	}{
		"numbers of every day": {1_234_567, 0, 400},
		"the longest numbers":  {math.MaxUint32 - 999, math.MaxUint32, 190},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := Statement{Node: strings.Repeat("n", 64), Boot: boot}
			for i := range uint32(1000) {
				s = s.With(journal.ID{Job: tt.first + i, Restart: tt.restart})
			}
			n := len(s.Released)
			if n < tt.least || s.Released[n-1].Job != tt.first+999 || s.Released[0].Job != tt.first+1000-uint32(n) {
				t.Errorf("%d releases, from %v to %v; want at least the last %d", n, s.Released[0], s.Released[n-1], tt.least)
			}
			seal(t, newKey(t), NodeSubject("deep", s.Node), s)
		})
	}
}

func TestAStatementArrives(t *testing.T) {
	key := newKey(t)
	s := Statement{Node: "n1", Boot: boot}
	for i := range uint32(64) {
		s = s.With(journal.ID{Job: math.MaxUint32 - i, Restart: i})
	}
	held := Statement{Node: "n1", Boot: boot}.Holding([]Holding{holding(10), holding(9)})
	for _, want := range []Statement{s, {Node: "n1", Boot: boot}, held, {Node: "n1", More: true}} {
		text := seal(t, key, NodeSubject("deep", "n1"), want)
		var got Statement
		if err := Open(key, NodeSubject("deep", "n1"), text, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("statement differs (-want +got):\n%s", diff)
		}
	}
}

// The tags that it holds leave room for the confirmations without which no tag comes back.
func TestAStatementNamesWhatIsHeld(t *testing.T) {
	var held []Holding
	for i := range uint32(100) {
		held = append(held, holding(math.MaxUint32-i))
	}
	full := Statement{Node: strings.Repeat("n", 64), Boot: boot}
	for i := range uint32(1000) {
		full = full.With(journal.ID{Job: 1_234_567 + i})
	}
	tests := map[string]struct {
		held []Holding
		most int // of releases that are forgotten
		more bool
	}{
		"nothing":     {nil, 0, false},
		"three runs":  {held[:3], 30, false},
		"a full node": {held, 160, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := full.Holding(tt.held)
			text := seal(t, newKey(t), NodeSubject("deep", s.Node), s)
			if lost := len(full.Released) - len(s.Released); lost > tt.most || len(text) > maxText || s.More != tt.more {
				t.Errorf("%d releases are forgotten, %d characters, more: %v", lost, len(text), s.More)
			}
			if n := len(s.Held); !tt.more && n != len(tt.held) || tt.more && (n < 15 || s.Held[0].Job.Job != math.MaxUint32-99) {
				t.Errorf("%d held: %+v", n, s.Held)
			}
			if s.Holds(journal.ID{Job: 1}) != tt.more || len(tt.held) > 0 && !s.Holds(tt.held[0].Job) {
				t.Error("it holds others")
			}
		})
	}
	if s := full.Holding(held).Holding(nil); len(s.Held) > 0 || s.More {
		t.Errorf("%+v", s.Held)
	}
}

func holding(job uint32) Holding {
	return HoldingOf(fabric.Reservation{
		Job: journal.ID{Job: job}, UID: 1000, VMs: 4, VFs: 2,
		Grants: []fabric.Grant{{Kind: fabric.VNI, Tags: []fabric.Tag{65535}}, {Kind: fabric.VLAN}, {Kind: fabric.PKey, Tags: []fabric.Tag{7}}},
	})
}

func TestAStatementThatIsDamaged(t *testing.T) {
	s := Statement{Node: "n2"}
	for _, text := range []string{`{"released":"1.0 x"}`, `{"released":"1"}`, `{"released":"1.0 -1.0"}`, `{"released":["1.0"]}`, `[]`, `{"held":{"x":{}}}`, `{"held":{"1.0":{"tags":7}}}`} {
		if err := json.Unmarshal([]byte(text), &s); err == nil {
			t.Errorf("%s is read as %v", text, s)
		}
	}
	if diff := cmp.Diff(Statement{Node: "n2"}, s); diff != "" {
		t.Errorf("the statement has changed:\n%s", diff)
	}
	err := json.Unmarshal([]byte(`{"released":"1.0 x"}`), &s)
	if want := `a node's statement: "x" is not JOB.RESTART, such as 4217.0`; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("error = %v, want %s", err, want)
	}
}
