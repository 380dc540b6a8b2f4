package template

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/images/cache"
	"github.com/slurm-v/slurm-v/journal"
)

const kib = 1 << 10

// A lab is a store, and the journal of a job.
type lab struct {
	*Store
	job *journal.Journal
	t   *testing.T
}

func newNode(t *testing.T, limit int64) *lab {
	t.Helper()
	state := t.TempDir()
	job, err := journal.Create(state, journal.ID{Job: 8}, journal.Header{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = job.Close() })
	return &lab{Open(state, limit), job, t}
}

func (l *lab) use(t Template) error { return l.job.Intend(Use, t.Dir, nil) }

func shape(path string) Shape {
	return Shape{Named: path, Image: []images.FileIdentity{{Path: path, Identity: cache.Identity{Size: 7}}}, VCPUs: 1, Threads: 1, Memory: 384, QEMU: "7.2", Version: "1"}
}

// make makes a template with a file of size bytes.
func (l *lab) make(whose Whose, s Shape, size int) error {
	l.t.Helper()
	draft, err := l.Draft(l.t.Context(), whose, s, "1.0", func(string) error { return nil })
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() {
		if err := draft.Close(); err != nil {
			l.t.Error(err)
		}
	}()
	if err := os.WriteFile(draft.Disk(), make([]byte, size), 0o600); err != nil {
		l.t.Fatal(err)
	}
	return draft.Publish(l.t.Context())
}

func (l *lab) find(s Shape, whose Whose) (Template, error) {
	return l.Find(l.t.Context(), whose, s, func(Template) error { return nil })
}

// used says when the template was used last.
func (l *lab) used(t Template, ago time.Duration) {
	at := time.Now().Add(-ago)
	if err := os.Chtimes(filepath.Join(t.Dir, aboutFile), at, at); err != nil {
		l.t.Fatal(err)
	}
}

func TestOnlyItsOwnersFindATemplate(t *testing.T) {
	n := newNode(t, 1<<30)
	if err := n.make(Own(1001), shape("/a"), 1); err != nil {
		t.Fatal(err)
	}
	if err := n.make(Site, shape("/b"), 1); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		image string
		whose Whose
		found bool
	}{
		"the owner":                     {"/a", Own(1001), true},
		"another user":                  {"/a", Own(1002), false},
		"everybody the site's":          {"/b", Site, true},
		"nobody a file's of that name":  {"/b", Own(1002), false},
		"the owner, of another image":   {"/c", Own(1001), false},
		"a user whose number begins so": {"/a", Own(10010), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := n.find(shape(tt.image), tt.whose)
			if tt.found != (err == nil) || err != nil && !errors.Is(err, ErrNone) {
				t.Errorf("error = %v", err)
			}
		})
	}
}

// Two names of a file have one copy on the node.
func TestATemplateFitsUnderAnotherName(t *testing.T) {
	n := newNode(t, 1<<30)
	if err := n.make(Own(1), shape("/a"), 1); err != nil {
		t.Fatal(err)
	}
	s := shape("/a")
	s.Named = "/link"
	if _, err := n.find(s, Own(1)); err != nil {
		t.Error(err)
	}
}

func TestWhyATemplateDoesNotFit(t *testing.T) {
	n := newNode(t, 1<<30)
	if err := n.make(Own(1), shape("/a"), 1); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		change func(*Shape)
		want   string
	}{
		"the image was written to": {func(s *Shape) { s.Image[0].Modified++ }, "the image has changed"},
		"a file below it, too":     {func(s *Shape) { s.Image = append(s.Image, images.FileIdentity{}) }, "the image has changed"},
		"more vCPUs":               {func(s *Shape) { s.VCPUs = 2 }, "it has 1 vCPUs, and not 2"},
		"hyper-threads":            {func(s *Shape) { s.Threads = 2 }, "it has 1 hyper-threads per core, and not 2"},
		"CPUs to themselves":       {func(s *Shape) { s.Dedicated = true }, "it is for VMs that have no CPUs to themselves"},
		"more memory":              {func(s *Shape) { s.Memory = 512 }, "it has 384 MiB of memory, and not 512"},
		"another disk":             {func(s *Shape) { s.DiskMiB = 4096 }, "a disk of another size"},
		"other firmware":           {func(s *Shape) { s.UEFI.Path = "/f/CODE.fd" }, "other firmware"},
		"a newer QEMU":             {func(s *Shape) { s.QEMU = "8.0" }, "another version of QEMU"},
		"a newer Slurm-V":          {func(s *Shape) { s.Version = "2" }, "another version of Slurm-V"},
		"another guest agent":      {func(s *Shape) { s.Guest.Inode++ }, "another version of Slurm-V"},
		"more slots":               {func(s *Shape) { s.Mounts++ }, "its configuration has changed"},
		"another machine":          {func(s *Shape) { s.Machine = "pc" }, "its configuration has changed"},
		"another processor":        {func(s *Shape) { s.CPU = "EPYC" }, "its configuration has changed"},
		"KVM":                      {func(s *Shape) { s.Accel = "kvm" }, "its configuration has changed"},
		"another copy of it":       {func(s *Shape) { s.Image[0].Path = "/cache/b" }, "the node has another copy"},
		"another image":            {func(s *Shape) { s.Named, s.Image[0].Path = "/b", "/b" }, "no template of the image"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := shape("/a")
			tt.change(&s)
			if _, err := n.find(s, Own(1)); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q in it", err, tt.want)
			}
		})
	}
}

// A template for pinned VMs would make other VMs' vCPUs spin on CPUs that others could use.
func TestATemplateOfPinnedVMsFitsNoOthers(t *testing.T) {
	n := newNode(t, 1<<30)
	s := shape("/a")
	s.Dedicated = true
	if err := n.make(Own(1), s, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := n.find(s, Own(1)); err != nil {
		t.Error(err)
	}
	const want = "it is for VMs that have CPUs to themselves"
	if _, err := n.find(shape("/a"), Own(1)); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), want) {
		t.Errorf("error = %v, want %q in it", err, want)
	}
}

// A template of a version that did not note how vCPUs lie has another name and is not found.
func TestATemplateThatSaysNothingOfItsCPUsDoesNotFit(t *testing.T) {
	n := newNode(t, 1<<30)
	if err := n.make(Own(1), shape("/a"), 1); err != nil {
		t.Fatal(err)
	}
	found, err := n.find(shape("/a"), Own(1))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(shape("/a"))
	if err != nil {
		t.Fatal(err)
	}
	old := strings.Replace(string(text), `,"threads":1,"dedicated":false`, "", 1)
	sum := sha256.Sum256([]byte(old))
	dir := n.dirOf(Own(1), hex.EncodeToString(sum[:16]))
	err = errors.Join(os.Rename(found.Dir, dir), os.WriteFile(filepath.Join(dir, aboutFile), []byte(`{"shape":`+old+`}`), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	const want = "another version of Slurm-V"
	if _, err := n.find(shape("/a"), Own(1)); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), want) {
		t.Errorf("error = %v, want %q in it", err, want)
	}
}

func TestTheOldestGoesFirstAndNoneInUse(t *testing.T) {
	n := newNode(t, 200*kib)
	var all []Template
	for i, path := range []string{"/a", "/b", "/c"} {
		if err := n.make(Own(uint32(i)), shape(path), 40*kib); err != nil {
			t.Fatal(err)
		}
		found, err := n.find(shape(path), Own(uint32(i)))
		if err != nil {
			t.Fatal(err)
		}
		n.used(found, time.Duration(10-i)*time.Hour)
		all = append(all, found)
	}
	if err := n.use(all[0]); err != nil {
		t.Fatal(err)
	}
	if err := n.make(Own(9), shape("/d"), 90*kib); err != nil {
		t.Fatal(err)
	}
	for i, left := range []bool{true, false, true} {
		if _, err := os.Stat(all[i].Dir); (err == nil) != left {
			t.Errorf("template %d: %v", i, err)
		}
	}
}

func TestATemplateThatHasNoRoomIsNotKept(t *testing.T) {
	n := newNode(t, 100*kib)
	if err := n.make(Own(1), shape("/big"), 200*kib); err == nil || !strings.Contains(err.Error(), "warm.size") {
		t.Errorf("error = %v", err)
	}
	if err := n.make(Own(1), shape("/a"), 60*kib); err != nil {
		t.Fatal(err)
	}
	used, err := n.Find(t.Context(), Own(1), shape("/a"), n.use)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.make(Own(1), shape("/b"), 60*kib); !errors.Is(err, errInUse) {
		t.Errorf("error = %v", err)
	}
	if err := n.Remove(t.Context(), used); !errors.Is(err, errInUse) {
		t.Errorf("a template in use was removed: %v", err)
	}
	if err := n.job.Undone(Use, used.Dir); err != nil {
		t.Fatal(err)
	}
	if err := n.Remove(t.Context(), used); err != nil {
		t.Error(err)
	}
	if left, _ := n.List(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// What cannot be written into the journal is not used, and what is found counts as used.
func TestFindNotesTheUse(t *testing.T) {
	n := newNode(t, 1<<30)
	if err := n.make(Own(1), shape("/a"), 1); err != nil {
		t.Fatal(err)
	}
	bad := errors.New("disk full")
	if _, err := n.Find(t.Context(), Own(1), shape("/a"), func(Template) error { return bad }); !errors.Is(err, bad) {
		t.Errorf("error = %v", err)
	}
	found, _ := n.find(shape("/a"), Own(1))
	n.used(found, time.Hour)
	before := time.Now().Add(-time.Minute)
	if _, err := n.find(shape("/a"), Own(1)); err != nil {
		t.Fatal(err)
	}
	if all, err := n.List(); err != nil || len(all) != 1 || all[0].Used.Before(before) {
		t.Errorf("templates %+v: %v", all, err)
	}
}

// Whoever dies while he makes or removes one leaves nothing that is ever found, and
// nothing that stays.
func TestSweep(t *testing.T) {
	n := newNode(t, 1<<30)
	if err := n.make(Own(1), shape("/a"), 1); err != nil {
		t.Fatal(err)
	}
	whole, _ := n.find(shape("/a"), Own(1))
	dead, busy, gone := filepath.Join(n.dir, "1", "7.0.draft"), filepath.Join(n.dir, "1", "8.0.draft"), whole.Dir+"x.gone"
	for _, dir := range []string{dead, busy, gone} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		text, _ := os.ReadFile(filepath.Join(whole.Dir, aboutFile))
		if err := os.WriteFile(filepath.Join(dir, aboutFile), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if all, _ := n.List(); len(all) != 1 {
		t.Errorf("half a template is listed: %v", all)
	}
	if err := errors.Join(n.job.Intend(Work, busy, nil), n.Sweep(t.Context())); err != nil {
		t.Fatal(err)
	}
	for dir, left := range map[string]bool{whole.Dir: true, busy: true, dead: false, gone: false} {
		if _, err := os.Stat(dir); (err == nil) != left {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// A template that is no good is not found again, another takes its place, and what is not
// used any more is swept.
func TestSpoil(t *testing.T) {
	n := newNode(t, 1<<30)
	remake := func() Template {
		t.Helper()
		if err := n.make(Own(1), shape("/a"), 1); err != nil {
			t.Fatal(err)
		}
		found, err := n.Find(t.Context(), Own(1), shape("/a"), n.use)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(found.Saved(), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return found
	}
	bad := remake()
	if err := n.Spoil(t.Context(), bad); err != nil {
		t.Fatal(err)
	}
	if _, err := n.find(shape("/a"), Own(1)); !errors.Is(err, ErrNone) {
		t.Errorf("error = %v", err)
	}
	if err := n.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bad.Dir); err != nil {
		t.Errorf("it is gone while it is used: %v", err)
	}
	if err := n.job.Undone(Use, bad.Dir); err != nil {
		t.Fatal(err)
	}
	bad = remake()
	if err := errors.Join(n.Spoil(t.Context(), bad), n.job.Undone(Use, bad.Dir), n.Sweep(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bad.Dir); err == nil {
		t.Error("it is left though nobody uses it")
	}
}

// Two of an owner wait for each other, and the second finds what the first has made.
func TestOneDraftOfAnOwnerAtATime(t *testing.T) {
	n := newNode(t, 1<<30)
	nothing := func(string) error { return nil }
	first, err := n.Draft(t.Context(), Own(1), shape("/a"), "1.0", nothing)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := n.Draft(short, Own(1), shape("/a"), "2.0", nothing); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error = %v", err)
	}
	if other, err := n.Draft(t.Context(), Own(2), shape("/a"), "3.0", nothing); err != nil || other.Exists() {
		t.Errorf("another owner: %v", err)
	}
	if err := errors.Join(first.Publish(t.Context()), first.Close()); err != nil {
		t.Fatal(err)
	}
	second, err := n.Draft(t.Context(), Own(1), shape("/a"), "2.0", nothing)
	if err != nil || !second.Exists() {
		t.Errorf("the second does not find what the first made: %v", err)
	}
}
