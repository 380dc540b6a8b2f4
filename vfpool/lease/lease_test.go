package lease

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vfpool/device"
)

var (
	hardware = device.VF{PF: "p0", Index: 3, Kind: device.SRIOV, PCI: "0000:01:10.3", Group: 7}
	bridged  = device.VF{PF: "br0", Index: 3, Kind: device.Software, Group: -1}
	job      = journal.ID{Job: 4217, Restart: 1}
	original = &device.State{Settings: device.Settings{MAC: "02:00:00:00:00:01"}, Driver: "igbvf"}
)

func open(t testing.TB) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "state", "vf"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func lock(t testing.TB, s *Store) *Locked {
	t.Helper()
	l, err := s.Lock(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Unlock)
	return l
}

func put(t testing.TB, l *Locked, r Lease) Lease {
	t.Helper()
	r, err := l.Put(r)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wantLeases(t testing.TB, s *Store, want ...Lease) {
	t.Helper()
	got, err := s.Read()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("leases differ (-want +got):\n%s", diff)
	}
}

func TestALeaseFromPutToDelete(t *testing.T) {
	s := open(t)
	wantLeases(t, s)
	l := lock(t, s)
	r := put(t, l, Lease{VF: hardware, Job: job, VM: 2, Index: 1, Want: device.Settings{MinRate: 10000}})
	other := put(t, l, Lease{VF: bridged, Job: journal.ID{Job: 1}})
	if r.Phase != Leased || r.BootID != s.boot || r.Epoch == 0 {
		t.Errorf("Put does not fill in step, boot and epoch: %+v", r)
	}
	wantLeases(t, s, other, r)
	for _, step := range []Phase{Saved, Applied, Applied, Attached, Releasing} {
		r.Phase, r.Original = step, original
		if err := s.Update(r); err != nil {
			t.Fatal(err)
		}
		wantLeases(t, s, other, r)
	}
	for range 2 { // reclaiming twice is no error
		if err := l.Delete(r); err != nil {
			t.Fatal(err)
		}
		wantLeases(t, s, other)
	}
	again := put(t, l, Lease{VF: hardware, Job: job, VM: 2, Index: 1})
	if again.Epoch <= r.Epoch {
		t.Errorf("the next lease has epoch %d, the last had %d", again.Epoch, r.Epoch)
	}
	all, err := l.All()
	if diff := cmp.Diff([]Lease{other, again}, all); err != nil || diff != "" {
		t.Errorf("All: error %v, (-want +got):\n%s", err, diff)
	}
}

func TestAVFIsLeasedOnce(t *testing.T) {
	s := open(t)
	l := lock(t, s)
	r := put(t, l, Lease{VF: hardware, Job: job, VM: 2})
	renamed := hardware
	renamed.PF = "eth7" // the same VF, though its PF has a new name
	for _, second := range []Lease{{VF: renamed, Job: journal.ID{Job: 1}}, r} {
		_, err := l.Put(second)
		var taken *takenError
		if !errors.As(err, &taken) || !errors.Is(err, errTaken) || taken.Holder.Job != job {
			t.Errorf("error = %v", err)
		}
		const want = "lease VF 0000:01:10.3: leased to VM 2 of job 4217.1"
		if err.Error() != want {
			t.Errorf("error = %q, want %q", err, want)
		}
	}
	wantLeases(t, s, r)
}

func TestALeaseThatHasEnded(t *testing.T) {
	s := open(t)
	l := lock(t, s)
	old := put(t, l, Lease{VF: hardware, Job: job})
	if err := l.Delete(old); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(old); !errors.Is(err, errLost) {
		t.Errorf("Update of a free VF: error = %v", err)
	}
	r := put(t, l, Lease{VF: hardware, Job: job})
	if err := s.Update(old); !errors.Is(err, errLost) {
		t.Errorf("Update of the lease before this one: error = %v", err)
	}
	if err := l.Delete(old); err != nil {
		t.Errorf("Delete of the lease before this one: error = %v", err)
	}
	wantLeases(t, s, r)
}

func TestWhatALeaseDoesNotBecome(t *testing.T) {
	tests := map[string]struct {
		change func(*Lease)
		want   string
	}{
		"an earlier step":   {func(r *Lease) { r.Phase = Saved }, `lease of VF 0000:01:10.3: step "saved" does not come after "applied"`},
		"an unknown step":   {func(r *Lease) { r.Phase = "done" }, `step "done" does not come after "applied"`},
		"no original":       {func(r *Lease) { r.Original = nil }, "the original state of the VF is known already"},
		"another original":  {func(r *Lease) { r.Original = &device.State{} }, "the original state of the VF is known already"},
		"that of a new job": {func(r *Lease) { r.Job.Restart++ }, "the lease has ended"},
		"that of a free VF": {func(r *Lease) { r.VF = bridged }, "lease of VF br0.3: the lease has ended"},
	}
	s := open(t)
	r := put(t, lock(t, s), Lease{VF: hardware, Job: job, Phase: Saved, Original: original})
	r.Phase = Applied
	if err := s.Update(r); err != nil {
		t.Fatal(err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			changed := r
			tt.change(&changed)
			if err := s.Update(changed); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q in it", err, tt.want)
			}
			wantLeases(t, s, r)
		})
	}
}

func TestQuarantine(t *testing.T) {
	s := open(t)
	l := lock(t, s)
	r := put(t, l, Lease{VF: hardware, Job: job})
	r.Quarantine = strings.Repeat("\x01ü", 4000) // the longest text in JSON
	if err := s.Update(r); err != nil {
		t.Fatal(err)
	}
	_, err := l.Put(Lease{VF: hardware, Job: journal.ID{Job: 1}})
	if !errors.Is(err, errTaken) || !strings.HasPrefix(err.Error(), "lease VF 0000:01:10.3: in quarantine: \x01ü") {
		t.Errorf("error = %v", err)
	}
	if err := l.Delete(r); err != nil {
		t.Fatal(err)
	}
	put(t, l, Lease{VF: hardware, Job: job})
}

func TestPutRefuses(t *testing.T) {
	tests := map[string]Lease{
		"a VF without a kind":             {VF: device.VF{PF: "p0", PCI: "0000:01:10.3"}},
		"a VF without a PCI address":      {VF: device.VF{PF: "p0", Kind: device.SRIOV}},
		"a software VF without PF":        {VF: device.VF{Kind: device.Software}},
		"a VF of another kind":            {VF: device.VF{PF: "p0", Kind: "cxi"}},
		"a VF with an index below zero":   {VF: device.VF{PF: "p0", Kind: device.Software, Index: -1}},
		"a step that there is not":        {VF: hardware, Phase: "done"},
		"a record too large for its slot": {VF: hardware, Want: device.Settings{MAC: strings.Repeat("x", slotSize)}},
	}
	s := open(t)
	l := lock(t, s)
	for name, r := range tests {
		t.Run(name, func(t *testing.T) {
			if r, err := l.Put(r); err == nil {
				t.Errorf("leased %+v", r)
			}
			wantLeases(t, s)
		})
	}
}

func TestKeys(t *testing.T) {
	tests := map[string]device.VF{
		"sriov-0000:01:10.3":     {Kind: device.SRIOV, PCI: "0000:01:10.3", Group: -1, NUMA: -1},
		"software-br0.3":         {Kind: device.Software, PF: "br0", Index: 3, Group: -1, NUMA: -1},
		"software-a.1.3":         {Kind: device.Software, PF: "a.1", Index: 3, Group: -1, NUMA: -1},
		"software-..%2F..%2Fx.0": {Kind: device.Software, PF: "../../x", Group: -1, NUMA: -1},
		"software-...0":          {Kind: device.Software, PF: "..", Group: -1, NUMA: -1},
	}
	for key, vf := range tests {
		if got := KeyOf(vf); string(got) != key {
			t.Errorf("KeyOf(%+v) = %s, want %s", vf, got, key)
		}
		if got, err := Key(key).vf(); err != nil || got != vf {
			t.Errorf("%s is %+v, %v; want %+v", key, got, err, vf)
		}
	}
	for _, key := range []Key{"", "lock", "new", "sriov-", "software-.0", "software-br0", "software-br0.03", "software-%zz.0", "cxi-0"} {
		if vf, err := key.vf(); err == nil {
			t.Errorf("%q is %+v", key, vf)
		}
	}
}

func TestLeasesOfAnEarlierBoot(t *testing.T) {
	s := open(t)
	l := lock(t, s)
	r := put(t, l, Lease{VF: hardware, Job: job})
	l.Unlock()
	s.boot = "another"
	r.OldBoot = true
	wantLeases(t, s, r)
	l = lock(t, s)
	if _, err := l.Put(Lease{VF: hardware, Job: job}); !errors.Is(err, errTaken) {
		t.Errorf("error = %v", err)
	}
	r.Quarantine = "its reset fails"
	if err := s.Update(r); err != nil {
		t.Fatal(err)
	}
	wantLeases(t, s, r) // with the boot ID of the boot in which it was leased
	if err := l.Delete(r); err != nil {
		t.Fatal(err)
	}
	wantLeases(t, s)
}

func TestTheLockIsExclusiveAndCanBeGivenUp(t *testing.T) {
	s := open(t)
	l := lock(t, s)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := s.Lock(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), filepath.Join(s.dir, lockFile)) {
		t.Errorf("error = %v", err)
	}
	l.Unlock()
	lock(t, s) // the caller that gave up does not keep the lock
}

func TestOtherFilesAreLeftAlone(t *testing.T) {
	s := open(t)
	l := lock(t, s)
	for _, name := range []string{"x.held", "sriov-.held", ".held", "notes", "software-br0.0.held~"} {
		write(t, filepath.Join(s.dir, name), []byte("x"))
	}
	wantLeases(t, s)
	s.boot = "next"
	l.Unlock()
	wantLeases(t, s, put(t, lock(t, s), Lease{VF: bridged, Job: job}))
}

func TestTheStoreIsRootsAlone(t *testing.T) {
	s := open(t)
	put(t, lock(t, s), Lease{VF: hardware, Job: job})
	for path, want := range map[string]os.FileMode{s.dir: 0o700, s.path(KeyOf(hardware), heldSuffix): 0o600} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, error %v; want %o", path, info.Mode(), err, want)
		}
	}
}

func TestARecordIsReadableJSON(t *testing.T) {
	s := open(t)
	r := put(t, lock(t, s), Lease{VF: hardware, Job: job})
	text, err := os.ReadFile(s.path(r.Key(), heldSuffix))
	if err != nil || len(text) != fileSize {
		t.Fatalf("%d bytes, error %v", len(text), err)
	}
	var found bool
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), " ", 3)
		var got Lease
		if len(fields) == 3 && json.Unmarshal([]byte(fields[2]), &got) == nil && cmp.Equal(got, r) {
			found = true
		}
	}
	if !found {
		t.Errorf("the record is not in its file:\n%s", text)
	}
}
