package cxi

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNarrow(t *testing.T) {
	wish := Limits{PTE: {6, 100}, TXQ: {192, 1024}, LE: {64, 100}, TLE: {96, 96}}
	after := func(change func(*Limits)) Limits {
		l := wish
		change(&l)
		return l
	}
	enough := Amounts{PTE: 50, TXQ: 1024, LE: 100, TLE: 100}
	tests := map[string]struct {
		reports []report
		want    Limits
		text    string
		again   bool // whether it is worth another attempt
	}{
		// What a driver that stops at the first shortage says of the others is 0.
		"the first one only": {
			[]report{{available: Amounts{PTE: 50, TXQ: 64}}},
			after(func(l *Limits) { l[TXQ].Reserved = 64 }), "64 TXQs of 192", true,
		},
		"one after the other": {
			[]report{{available: Amounts{PTE: 2}}, {available: Amounts{PTE: 2, TXQ: 64}}},
			after(func(l *Limits) { l[PTE].Reserved, l[TXQ].Reserved = 2, 64 }), "2 PTEs of 6, 64 TXQs of 192", true,
		},
		"not twice, when another job takes what there was": {
			[]report{{available: Amounts{PTE: 2}}, {available: Amounts{PTE: 1}}},
			after(func(l *Limits) { l[PTE].Reserved = 2 }), "2 PTEs of 6", false,
		},
		"TLEs are as many as are reserved": {
			[]report{{available: Amounts{PTE: 50, TXQ: 1024, LE: 100, TLE: 40}}},
			after(func(l *Limits) { l[TLE] = Limit{40, 40} }), "40 TLEs of 96", true,
		},
		"too few TLEs for a pool": {
			[]report{{available: Amounts{PTE: 50, TXQ: 1024, LE: 100, TLE: 7}}},
			after(func(l *Limits) { l[TLE] = Limit{} }), "0 TLEs of 96", true,
		},
		"no pool of LEs": {
			[]report{{available: enough, noLEPools: true}},
			after(func(l *Limits) { l[LE].Reserved = 0 }), "0 LEs of 64 (all pools of LEs are taken)", true,
		},
		"no pool of TLEs": {
			[]report{{available: enough, noTLEPools: true}},
			after(func(l *Limits) { l[TLE] = Limit{} }), "0 TLEs of 96 (all pools of TLEs are taken)", true,
		},
		"no pool after less": {
			[]report{{available: Amounts{PTE: 50, TXQ: 1024, LE: 5}}, {available: enough, noLEPools: true}},
			after(func(l *Limits) { l[LE].Reserved = 0 }), "5 LEs of 64, 0 LEs of 5 (all pools of LEs are taken)", true,
		},
		"pools of counters cannot be done without": {[]report{{available: enough, noCounterSet: true}}, wish, "", false},
		"a driver that does not say why":           {[]report{{available: enough}}, wish, "", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n, again := narrowing{limits: wish}, false
			for _, r := range tt.reports {
				again = n.narrow(r)
			}
			if diff := cmp.Diff(tt.want, n.limits); diff != "" || again != tt.again || n.text() != tt.text {
				t.Errorf("again = %t, text = %q; limits differ (-want +got):\n%s", again, n.text(), diff)
			}
		})
	}
}
