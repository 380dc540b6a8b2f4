package ledger

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

// values returns all that is in a store, each bucket from a key on.
func values(s store, from string) map[string]string {
	all := map[string]string{}
	for _, b := range buckets {
		var keys []string
		s.scan(b, from, func(key string, value []byte) bool {
			keys = append(keys, key)
			all[string(b)+" "+key] = string(value)
			return len(keys) < 100
		})
		if !slices.IsSorted(keys) {
			all["order of "+string(b)] = fmt.Sprint(keys)
		}
	}
	delete(all, string(meta)+" mark") // only a ledger in a file has one
	return all
}

// The map behaves as a transaction does.
func TestBothStoresAreEqual(t *testing.T) {
	l, err := Open(t.Context(), filepath.Join(t.TempDir(), "ledger"))
	noError(t, err)
	defer l.Close()
	random, twin := rand.New(rand.NewPCG(1, 1)), newMemory()
	noError(t, machineOf(twin).write(meta, "format", format))
	for range 300 {
		b, key, value := buckets[random.IntN(len(buckets))], fmt.Sprint("k", random.IntN(40)), random.Uint32()
		change := func(m machine) error {
			if value%3 == 0 {
				return m.remove(b, key)
			}
			return m.write(b, key, value)
		}
		noError(t, l.update("change", change), change(machineOf(twin)))
		noError(t, l.view("compare", func(m machine) error {
			if diff := cmp.Diff(values(twin, key), values(m.store, key)); diff != "" {
				t.Fatalf("-map +bbolt:\n%s", diff)
			}
			if (m.get(b, key) == nil) != (twin.get(b, key) == nil) {
				t.Fatalf("get %s %s", b, key)
			}
			return nil
		}))
	}
	if n := len(values(twin, "")); n < 40 {
		t.Errorf("only %d values", n)
	}
}

// An error in the midst of a change changes nothing.
func TestAChangeThatFailsIsUndone(t *testing.T) {
	b := newBench(t, 1024, 1026)
	b.gives(id(1), 1024)
	noError(t, b.l.update("damage", func(m machine) error { return m.put(tags, "vni 01024", []byte("x")) }))
	if err := b.l.Adopt(reservation(id(2), 1025, 1024), []string{"n1"}, b.now, b.now); err == nil {
		t.Fatal("no error")
	}
	if all, err := b.l.Entries(); err != nil || len(all) != 1 {
		t.Errorf("entries %+v, error %v", all, err)
	}
	noError(t, b.l.update("mend", func(m machine) error {
		return m.write(tags, "vni 01024", holding{Jobs: []journal.ID{id(1)}})
	}))
}

func TestKeysSortAsWhatTheyStandFor(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	vni := func(n fabric.Tag) tag { return tag{fabric.VNI, n} }
	for name, keys := range map[string][]string{
		"jobs":    {jobKey(id(9)), jobKey(journal.ID{Job: 9, Restart: 9}), jobKey(journal.ID{Job: 9, Restart: 10}), jobKey(id(10)), jobKey(id(1<<32 - 1))},
		"tags":    {tagKey(vni(9)), tagKey(vni(10)), tagKey(vni(65535))},
		"cooling": {coolingKey(at, vni(2)), coolingKey(at.Add(1), vni(1)), coolingKey(at.Add(time.Second), vni(1))},
	} {
		if !slices.IsSorted(keys) {
			t.Errorf("%s: %v", name, keys)
		}
	}
}

func FuzzCoolingKey(f *testing.F) {
	f.Add(coolingKey(time.Now(), tag{fabric.VNI, 1}))
	f.Add("2026-01-02T03:04:05.000000000Z vni 70000")
	f.Add("")
	f.Fuzz(func(t *testing.T, key string) {
		since, tag, err := parseCoolingKey(key)
		if err == nil && coolingKey(since, tag) != key {
			t.Errorf("%q is read as %q", key, coolingKey(since, tag))
		}
	})
}

func TestAValueUnderAnotherKeyIsDamage(t *testing.T) {
	m := machineOf(newMemory())
	noError(t, m.write(jobs, jobKey(id(1)), record{Reservation: reservation(id(1))}))
	if r, err := m.record(id(1)); err != nil || r == nil {
		t.Fatalf("record %+v, error %v", r, err)
	}
	noError(t, m.write(jobs, jobKey(id(2)), record{Reservation: reservation(id(1))}))
	var d *damage
	if r, err := m.record(id(2)); !errors.As(err, &d) {
		t.Errorf("record %+v, error %v", r, err)
	}
}

// Check finds what no call of the package makes.
func TestCheckFindsContradictions(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	vni := tag{fabric.VNI, 1024}
	for name, change := range map[string]func(m machine) error{
		"a job whose tag is free":     func(m machine) error { return m.remove(tags, tagKey(vni)) },
		"a job whose tag cools":       func(m machine) error { return m.cool(vni, now) },
		"a tag of a job that is gone": func(m machine) error { return m.remove(jobs, jobKey(id(1))) },
		"a tag of another job, too":   func(m machine) error { return m.write(tags, tagKey(vni), holding{Jobs: []journal.ID{id(1), id(2)}}) },
		"a tag that cools for ever":   func(m machine) error { return m.write(tags, "vni 01025", holding{Since: now}) },
		"a tag that cools and is free": func(m machine) error {
			return m.write(cooling, coolingKey(now, tag{fabric.VNI, 1025}), true)
		},
		"two jobs without quarantine": func(m machine) error {
			r := record{Reservation: reservation(id(2), 1024), Began: now}
			return errors.Join(m.save(&r), m.write(tags, tagKey(vni), holding{Jobs: []journal.ID{id(1), id(2)}}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := machineOf(newMemory())
			_, err := m.reserve(request(id(1), Want{Pool: vnis(1024, 1024), Count: 1}), Options{}, now)
			noError(t, err, m.check(), change(m))
			if m.check() == nil {
				t.Error("nothing is wrong")
			}
		})
	}
}
