package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vfpool/device"
)

// A disk holds what a power cut would leave of a store's files: all sectors that were
// synced, and any of those that were written later.
type disk struct {
	store  *Store
	synced map[uint64][]byte // by inode
	before func()            // called before a sync
	random *rand.Rand
}

func newDisk(s *Store, seed uint64) *disk {
	d := &disk{s, map[uint64][]byte{}, func() {}, rand.New(rand.NewPCG(seed, 0))}
	s.sync = func(f *os.File) error {
		d.before()
		text, err := os.ReadFile(f.Name())
		d.synced[inode(f.Name())] = text
		return err
	}
	return d
}

func inode(path string) uint64 {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return 0
	}
	return stat.Ino
}

// cut returns the store as the next boot finds it.
func (d *disk) cut(t *testing.T) *Store {
	t.Helper()
	files, err := d.store.keys(heldSuffix, freeSuffix)
	if err != nil {
		t.Fatal(err)
	}
	after := &Store{dir: t.TempDir(), boot: "next", sync: func(*os.File) error { return nil }}
	for _, k := range files {
		text, err := os.ReadFile(k.path)
		if err != nil {
			t.Fatal(err)
		}
		suffix := []string{heldSuffix, freeSuffix}[d.random.IntN(2)] // names are not synced
		if err := os.WriteFile(after.path(k.key, suffix), d.mix(d.synced[inode(k.path)], text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return after
}

func (d *disk) mix(synced, written []byte) []byte {
	const sector = 512
	mixed := make([]byte, len(written))
	copy(mixed, synced)
	for at := 0; at < len(mixed); at += sector {
		if d.random.IntN(2) == 0 {
			copy(mixed[at:at+sector], written[at:])
		}
	}
	return mixed
}

// After a power cut at any time, every Put and Update that had returned is still there. A
// deleted lease is gone, or back as it was.
func TestPowerCuts(t *testing.T) {
	s := open(t)
	l := lock(t, s)
	d := newDisk(s, 1)
	held, deleted := map[Key]Lease{}, map[Key]Lease{}
	for i := range 150 {
		vf := device.VF{PF: "br0", Kind: device.Software, Index: d.random.IntN(5)}
		key := KeyOf(vf)
		r, leased := held[key]
		d.before = func() { checkAfterCut(t, d.cut(t), key, held, deleted) }
		switch {
		case !leased:
			held[key] = put(t, l, Lease{VF: vf, Job: journal.ID{Job: uint32(i)}, Want: device.Settings{MAC: strings.Repeat("x", d.random.IntN(2000))}})
			delete(deleted, key)
		case r.Phase == Leased:
			r.Phase, r.Original = Saved, &device.State{Driver: strings.Repeat("y", d.random.IntN(1000))}
			noError(t, s.Update(r))
			held[key] = r
		default:
			noError(t, l.Delete(r))
			delete(held, key)
			deleted[key] = r
		}
		checkAfterCut(t, d.cut(t), "", held, deleted)
	}
}

// A lease that was mended after one power cut survives the next one as well.
func TestAPowerCutAfterAPowerCut(t *testing.T) {
	s := open(t)
	l := lock(t, s)
	r := put(t, l, Lease{VF: hardware, Job: job, Want: device.Settings{MAC: strings.Repeat("x", 2000)}})
	r.Phase = Applied
	noError(t, s.Update(r))
	path := s.path(r.Key(), heldSuffix)
	text, err := os.ReadFile(path)
	noError(t, err)
	write(t, path, flip(0)(text)) // the Update
	l.Unlock()

	s.boot = "the second"
	d := newDisk(s, 1)
	d.synced[inode(path)] = flip(0)(text)
	l = lock(t, s)
	all, err := l.All()
	if err != nil || len(all) != 1 || all[0].Phase != Leased {
		t.Fatalf("leases %+v, error %v", all, err)
	}
	noError(t, l.Delete(all[0]))
	for range 100 {
		checkAfterCut(t, d.cut(t), "", map[Key]Lease{}, map[Key]Lease{r.Key(): all[0]})
	}
}

// checkAfterCut checks what the next boot finds. The VF of changing may be in its old or
// its new state.
func checkAfterCut(t *testing.T, s *Store, changing Key, held, deleted map[Key]Lease) {
	t.Helper()
	before, err := s.Read()
	noError(t, err)
	l := lock(t, s)
	defer l.Unlock()
	got, err := l.All()
	noError(t, err)
	if diff := cmp.Diff(before, got); diff != "" {
		t.Fatalf("Read before the first lock of a boot differs from All (-Read +All):\n%s", diff)
	}
	leases := map[Key]Lease{}
	for _, r := range got {
		if r.Quarantine != "" {
			t.Fatalf("a power cut is damage: %+v", r)
		}
		r.OldBoot = false
		if was, ok := deleted[r.Key()]; r.Key() != changing && (!ok || r.Epoch != was.Epoch) {
			leases[r.Key()] = r
		}
	}
	want := maps.Clone(held)
	delete(want, changing)
	if diff := cmp.Diff(want, leases); diff != "" {
		t.Fatalf("leases after a power cut (-before +after):\n%s", diff)
	}
}

// A crash at any instant within Put or Delete leaves the VF either leased or free, and it
// can be leased again. Each instant is simulated by a copy of the directory.
func TestCrashesBetweenTwoChanges(t *testing.T) {
	tests := map[string]struct {
		crash  func(t *testing.T, l *Locked, r Lease) // after the change of the files
		leased bool
	}{
		"before the new file has its name": {crash: func(t *testing.T, l *Locked, r Lease) {
			write(t, filepath.Join(l.dir, newFile), []byte("half"))
		}},
		"before the new file is held": {crash: func(t *testing.T, l *Locked, r Lease) {
			noError(t, l.create(l.path(r.Key(), freeSuffix)))
		}},
		"before the record is in the held file": {crash: func(t *testing.T, l *Locked, r Lease) {
			noError(t, l.create(l.path(r.Key(), heldSuffix)))
		}},
		"before the freed file is renamed": {crash: func(t *testing.T, l *Locked, r Lease) {
			put(t, l, r)
			f, err := openFile(l.path(r.Key(), heldSuffix))
			noError(t, err)
			noError(t, errors.Join(f.free(), f.Close()))
		}},
		"before Put has synced": {leased: true, crash: func(t *testing.T, l *Locked, r Lease) { put(t, l, r) }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := lock(t, open(t))
			r := Lease{VF: hardware, Job: job}
			tt.crash(t, l, r)
			all, err := l.All()
			if err != nil || (len(all) == 1) != tt.leased {
				t.Fatalf("leases %+v, error %v", all, err)
			}
			for _, r := range all {
				noError(t, l.Delete(r))
			}
			put(t, l, r)
		})
	}
}

// An agent may still be at work on a VF when somebody ends its lease.
func TestUpdateBesideDelete(t *testing.T) {
	s := open(t)
	s.sync = func(*os.File) error { return nil }
	l := lock(t, s)
	for range 500 {
		r := put(t, l, Lease{VF: hardware, Job: job})
		lost := make(chan error)
		go func() {
			var err error
			for err == nil {
				err = s.Update(r)
			}
			lost <- err
		}()
		noError(t, l.Delete(r))
		if err := <-lost; !errors.Is(err, errLost) {
			t.Fatal(err)
		}
	}
	put(t, l, Lease{VF: hardware, Job: job})
}

// A reader does not wait for writers, and does not take a half-written record for damage.
func TestReadBesideUpdate(t *testing.T) {
	s := open(t)
	s.sync = func(*os.File) error { return nil }
	r := put(t, lock(t, s), Lease{VF: hardware, Job: job})
	done := make(chan error)
	go func() {
		var err error
		for i := range 5000 {
			r.Want.MAC = strings.Repeat("x", i%2000)
			err = errors.Join(err, s.Update(r))
		}
		done <- err
	}()
	for {
		select {
		case err := <-done:
			noError(t, err)
			return
		default:
			all, err := s.Read()
			if err != nil || len(all) != 1 || all[0].Quarantine != "" {
				t.Fatalf("leases %+v, error %v", all, err)
			}
		}
	}
}

func TestPutThatIsNotOnDiskIsNoLease(t *testing.T) {
	s := open(t)
	d := newDisk(s, 1)
	l := lock(t, s)
	r := put(t, l, Lease{VF: hardware, Job: job})
	noError(t, l.Delete(r))
	broken := errors.New("input/output error")
	s.sync = func(*os.File) error { return broken }
	if _, err := l.Put(Lease{VF: hardware, Job: job}); !errors.Is(err, broken) {
		t.Errorf("error = %v", err)
	}
	wantLeases(t, s)
	for range 100 {
		checkAfterCut(t, d.cut(t), "", map[Key]Lease{}, map[Key]Lease{r.Key(): r})
	}
}

func TestDamage(t *testing.T) {
	tests := map[string]struct {
		damage func(text []byte) []byte
		known  bool // the record names the job that has the VF
		reason string
	}{
		"a bit of the last write":         {flip(slotSize), false, "slot 1: its checksum is wrong"},
		"a bit of the write before":       {flip(0), true, "slot 0: its checksum is wrong"},
		"both slots":                      {func(b []byte) []byte { return flip(slotSize)(flip(0)(b)) }, false, "slot 1: its checksum is wrong"},
		"an empty file":                   {func([]byte) []byte { return nil }, false, "slot 1: it does not begin with a checksum"},
		"a file that is cut":              {func(b []byte) []byte { return b[:slotSize] }, false, "slot 1: it does not begin with a checksum"},
		"zeros":                           {func(b []byte) []byte { return make([]byte, len(b)) }, false, "slot 1: it does not begin with a checksum"},
		"a record that is not one":        {rewrite(`9 {"vm":"x"}`), false, "slot 0: json: cannot unmarshal"},
		"the record of another VF":        {rewrite(`9 {"vf":{"Kind":"sriov","PCI":"0000:01:10.4"}}`), false, "it is of VF 0000:01:10.4"},
		"a record without any VF":         {rewrite(`9 {}`), false, "it is of VF"},
		"a number that is too large":      {rewrite("99999999999999999999 null"), true, "slot 0: strconv.ParseUint"},
		"a file with something behind it": {func(b []byte) []byte { return append(flip(slotSize)(b), "x"...) }, false, "slot 1: its checksum is wrong"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			l := lock(t, s)
			r := put(t, l, Lease{VF: hardware, Job: job})
			path := s.path(r.Key(), heldSuffix)
			text, err := os.ReadFile(path)
			noError(t, err)
			write(t, path, tt.damage(text))

			all, err := l.All()
			if err != nil || len(all) != 1 {
				t.Fatalf("leases %+v, error %v", all, err)
			}
			got := all[0]
			if got.Key() != r.Key() || got.same(r) != tt.known || !strings.Contains(got.Quarantine, path+" is damaged ("+tt.reason) {
				t.Errorf("record = %+v", got)
			}
			if _, err := l.Put(Lease{VF: hardware, Job: job}); !errors.Is(err, errTaken) {
				t.Errorf("Put: error = %v", err)
			}
			if err := s.Update(r); err == nil {
				t.Error("a damaged record was updated")
			}
			noError(t, l.Delete(got)) // somebody has looked
			wantLeases(t, s)
			wantLeases(t, s, put(t, l, r))
		})
	}
}

// flip damages the byte in the middle of the line that begins at start.
func flip(start int) func([]byte) []byte {
	return func(text []byte) []byte {
		at := start + bytes.IndexByte(text[start:], '\n')/2
		text[at] ^= 1
		return text
	}
}

// rewrite makes body the number and record of slot 0.
func rewrite(body string) func([]byte) []byte {
	return func(text []byte) []byte { return append(line(body), text[slotSize:]...) }
}

// line returns a slot with the right checksum.
func line(body string) []byte {
	text := fmt.Appendf(nil, "%08x %s\n", checksum([]byte(body)), body)
	return append(text, make([]byte, slotSize-len(text))...)
}

func TestADamagedFileOfAFreeVF(t *testing.T) {
	s := open(t)
	l := lock(t, s)
	r := put(t, l, Lease{VF: hardware, Job: job})
	noError(t, l.Delete(r))
	path := s.path(r.Key(), freeSuffix)
	text, err := os.ReadFile(path)
	noError(t, err)
	write(t, path, flip(0)(text))
	if _, err := l.Put(r); !errors.Is(err, errTaken) {
		t.Errorf("error = %v", err)
	}
	all, err := l.All()
	if err != nil || len(all) != 1 || all[0].Quarantine == "" {
		t.Errorf("leases %+v, error %v", all, err)
	}
}

func TestAnAdministratorCanDeleteADamagedFile(t *testing.T) {
	s := open(t)
	l := lock(t, s)
	r := put(t, l, Lease{VF: hardware, Job: job})
	noError(t, os.Remove(s.path(r.Key(), heldSuffix)))
	wantLeases(t, s)
	if err := s.Update(r); !errors.Is(err, errLost) {
		t.Errorf("Update: error = %v", err)
	}
	wantLeases(t, s, put(t, l, r))
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, path string, text []byte) {
	t.Helper()
	noError(t, os.WriteFile(path, text, 0o600))
}

// Whatever bytes a file contains, its VF keeps its key and no damage goes unreported.
func FuzzParse(f *testing.F) {
	s := &Store{dir: f.TempDir(), boot: "b", sync: fdatasync}
	l, err := s.Lock(context.Background())
	noError(f, err)
	defer l.Unlock()
	r := put(f, l, Lease{VF: hardware, Job: job})
	text, err := os.ReadFile(s.path(r.Key(), heldSuffix))
	noError(f, err)
	f.Add(text)
	f.Add(text[:slotSize])
	f.Add(line("18446744073709551615 {}"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, text []byte) {
		c := parse(text)
		if (c.bad == 0) != (c.err == nil) || c.bad == 2 && c.record != nil {
			t.Fatalf("contents %+v", c)
		}
		for _, swept := range []bool{true, false} {
			r, leased := s.judge(KeyOf(hardware), c, swept)
			if leased && r.Key() != KeyOf(hardware) {
				t.Errorf("the lease is of %s", r.Key())
			}
			if swept && c.bad > 0 && r.Quarantine == "" {
				t.Errorf("damage is not noticed: %+v", r)
			}
		}
	})
}
