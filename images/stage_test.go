package images

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images/cache"
	"github.com/slurm-v/slurm-v/internal/owner"
)

var (
	ann = owner.Owner{Name: "ann", UID: 6001, GID: 6001}
	ben = owner.Owner{Name: "ben", UID: 6002, GID: 6002}
)

// A site has images on a file system of their own, and a node with a cache. Images may be copied as soon as they are written.
type site struct {
	shelf
	cfg    config.Config
	cached *cache.Cache
}

func newSite(t *testing.T) *site {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("acts as several users: run as root")
	}
	t.Parallel()
	remote, err := os.MkdirTemp("/dev/shm", "slurmv-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(remote) })
	if err := os.Chmod(remote, 0o755); err != nil {
		t.Fatal(err)
	}
	s := &site{shelf: shelf{t, remote}, cfg: config.Default()}
	s.cfg.Images.CacheDir = filepath.Join(passable(t), "cache")
	s.cached = Cache(s.cfg, "n1")
	s.cached.Granule = 0
	if beside, err := s.cached.Beside(openFile(t, s.raw("x", sector, 510, "\x55\xaa"))); beside || err != nil {
		t.Skipf("/dev/shm and TMPDIR are one file system (%v): set TMPDIR to a directory on a disk", err)
	}
	return s
}

// use gives the node a cache that holds at most limit bytes.
func (s *site) use(limit int64) {
	s.cached = cache.Open(s.cfg.Images.CacheDir, limit)
	s.cached.Granule = 0
}

func openFile(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func (s *site) staging(as owner.Owner) Staging {
	return Staging{Cache: s.cached, Site: s.cfg.Images, Owner: as, Holder: as.Name, Say: func(string) {}}
}

// stage is what a job of the user's gets for the image.
func (s *site) stage(path string, as owner.Owner) (Info, Outcome, error) {
	info, err := Inspect(s.t.Context(), s.cfg.Images, path, as)
	if err != nil {
		return Info{}, Outcome{}, err
	}
	return s.staging(as).Stage(s.t.Context(), path, info)
}

func (s *site) must(path string, as owner.Owner) (Info, Outcome) {
	s.t.Helper()
	info, outcome, err := s.stage(path, as)
	if err != nil {
		s.t.Fatal(err)
	}
	return info, outcome
}

// fill gives an image some content, so that chains that read differently are noticed.
func fill(t *testing.T, path, pattern, offset string) {
	t.Helper()
	if out, err := exec.Command("qemu-io", "-f", "qcow2", "-c", "write -P "+pattern+" "+offset+" 64k", path).CombinedOutput(); err != nil {
		t.Fatalf("qemu-io: %v\n%s", err, out)
	}
}

func (s *site) own(name string, who owner.Owner, mode os.FileMode) {
	s.t.Helper()
	if err := os.Chown(s.path(name), int(who.UID), int(who.GID)); err != nil {
		s.t.Fatal(err)
	}
	s.mode(name, mode)
}

func TestAChainIsCopiedWhole(t *testing.T) {
	s := newSite(t)
	base := s.sized("base.qcow2")
	fill(t, base, "1", "0")
	middle := s.qcow2("middle.qcow2", "-b", "base.qcow2", "-F", "qcow2")
	fill(t, middle, "2", "64k")
	top := s.qcow2("top.qcow2", "-b", middle, "-F", "qcow2")
	fill(t, top, "3", "128k")
	other := s.qcow2("other.qcow2", "-b", "middle.qcow2", "-F", "qcow2")
	info, outcome := s.must(top, ann)
	if outcome.How != Copied || outcome.Copied == 0 {
		t.Errorf("outcome %+v", outcome)
	}
	// QEMU finds the files that Stage names, all of them in the cache.
	seen, err := Inspect(t.Context(), s.cfg.Images, info.Path, ann)
	if diff := cmp.Diff([]string{"2", "1", "0"}, fileNames(seen)); err != nil || diff != "" {
		t.Fatalf("the copy is based on other files: error %v (-want +got):\n%s", err, diff)
	}
	for _, layer := range seen.Layers() {
		if !within([]string{s.cfg.Images.CacheDir}, layer.Path) {
			t.Errorf("%s is not in the cache", layer.Path)
		}
	}
	qemuImg(t, "compare", top, info.Path)
	if _, again := s.must(top, ann); again.How != Found || again.Copied != 0 {
		t.Errorf("the second time: %+v", again)
	}
	_, sibling := s.must(other, ann)
	if all, err := s.cached.List(); err != nil || len(all) != 4 || sibling.How != Copied {
		t.Errorf("an image on the same files: %+v, and %d entries, error %v", sibling, len(all), err)
	}
}

func fileNames(i Info) (names []string) {
	for _, layer := range i.Layers() {
		names = append(names, filepath.Base(layer.Path))
	}
	return names
}

func TestAnotherUsersCopyIsNobodyElses(t *testing.T) {
	s := newSite(t)
	path := s.sized("ann.qcow2")
	s.own("ann.qcow2", ann, 0o600)
	info, _ := s.must(path, ann)
	if _, _, err := s.stage(path, ben); err == nil || !strings.Contains(err.Error(), "not readable by user ben") {
		t.Errorf("the image itself: error = %v", err)
	}
	// Even if he had looked at it while he might.
	inspected, err := Inspect(t.Context(), s.cfg.Images, path, ann)
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := s.staging(ben).Stage(t.Context(), path, inspected); err == nil {
		t.Errorf("staging it gives %+v", got)
	}
	if file, _, err := open(t.Context(), ben, "image", info.Path); err == nil {
		t.Errorf("he opens the copy %s", file.Name())
	}
	s.own("ann.qcow2", ann, 0o644)
	mine, outcome := s.must(path, ben)
	if outcome.How != Copied || mine.Path == info.Path {
		t.Errorf("when he may read it, he gets %+v of the other's", outcome)
	}
}

// A copy is no right: it counts as long as the user may read the source.
func TestARightThatIsTakenAway(t *testing.T) {
	s := newSite(t)
	path := s.sized("shared.qcow2")
	if err := os.Chown(path, 0, int(ann.GID)); err != nil {
		t.Fatal(err)
	}
	s.mode("shared.qcow2", 0o640)
	inspected, err := Inspect(t.Context(), s.cfg.Images, path, ann)
	if err != nil {
		t.Fatal(err)
	}
	s.must(path, ann)
	s.mode(".", 0o700) // the file itself is as it was, and so would its key be
	defer s.mode(".", 0o755)
	if _, _, err := s.staging(ann).Stage(t.Context(), path, inspected); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("error = %v", err)
	}
}

func TestTheCatalogueIsShared(t *testing.T) {
	s := newSite(t)
	base := s.sized("base.qcow2")
	path := s.qcow2("site.qcow2", "-b", base, "-F", "qcow2")
	closed := s.sized("closed.qcow2")
	if err := os.Chown(closed, 0, int(ann.GID)); err != nil {
		t.Fatal(err)
	}
	s.mode("closed.qcow2", 0o640)
	mine := s.qcow2("mine.qcow2", "-b", path, "-F", "qcow2")
	s.cfg.Images.Catalogue = map[string]config.Image{"site": {Path: path}, "closed": {Path: closed}}
	first, _ := s.must(path, ann)
	second, outcome := s.must(path, ben)
	if outcome.How != Found || first.Path != second.Path {
		t.Errorf("the second user: %+v, %s and %s", outcome, first.Path, second.Path)
	}
	if _, err := Inspect(t.Context(), s.cfg.Images, second.Path, ben); err != nil {
		t.Errorf("he cannot use it: %v", err)
	}
	if info, _ := s.must(closed, ann); ownerUID(t, info.Path) != ann.UID {
		t.Error("an image that not everybody may read is everybody's")
	}
	info, _ := s.must(mine, ann)
	if ownerUID(t, info.Path) != ann.UID || info.Backing[0].Path != first.Path {
		t.Errorf("an image on one of the catalogue: %+v, and that is %s", info, first.Path)
	}
}

func ownerUID(t *testing.T, path string) uint32 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

func TestWhatIsUsedWhereItLies(t *testing.T) {
	s := newSite(t)
	path := s.sized("i.qcow2")
	s.cached.Granule = time.Hour
	if _, fresh := s.must(path, ann); fresh.How != Direct || !strings.Contains(fresh.String(), "changed a moment ago") {
		t.Errorf("an image that was just written: %v", fresh)
	}
	near := shelf{t, passable(t)}
	if info, outcome := s.must(near.sized("near.qcow2"), ann); outcome != (Outcome{How: Direct}) || !within([]string{near.dir}, info.Path) {
		t.Errorf("an image on the node's disk: %+v, %s", outcome, info.Path)
	}
	s.use(1)
	info, outcome := s.must(path, ann)
	if info.Path != path || outcome.How != Direct || !strings.Contains(outcome.String(), "no room in the image cache") {
		t.Errorf("without room: %v, %s", outcome, info.Path)
	}
	if strings.Contains(outcome.String(), "\n") {
		t.Errorf("several lines: %q", outcome)
	}
	if all, err := s.cached.List(); err != nil || len(all) > 0 {
		t.Errorf("left: %+v, error %v", all, err)
	}
}

// A chain of which only the lower part finds room is not used in parts.
func TestHalfAChainIsGivenBack(t *testing.T) {
	s := newSite(t)
	base := s.sized("base.qcow2")
	top := s.qcow2("top.qcow2", "-b", base, "-F", "qcow2")
	fill(t, top, "3", "0")
	fill(t, top, "4", "1M")
	info, err := os.Stat(base)
	if err != nil {
		t.Fatal(err)
	}
	s.use(info.Sys().(*syscall.Stat_t).Blocks * 512)
	if staged, outcome := s.must(top, ann); outcome.How != Direct || staged.Path != top || staged.Backing[0].Path != base {
		t.Errorf("%v: %+v", outcome, staged)
	}
	if all, err := s.cached.List(); err != nil || len(all) != 1 || len(all[0].Holders) > 0 {
		t.Errorf("the cache has %+v, error %v", all, err)
	}
}

func TestACopyForOneVM(t *testing.T) {
	s := newSite(t)
	base := s.sized("base.qcow2")
	fill(t, base, "1", "0")
	top := s.qcow2("top.qcow2", "-b", base, "-F", "qcow2")
	info, err := Inspect(t.Context(), s.cfg.Images, top, ann)
	if err != nil {
		t.Fatal(err)
	}
	dir := passable(t)
	if err := os.Chown(dir, int(ann.UID), int(ann.GID)); err != nil {
		t.Fatal(err)
	}
	got, err := CopyTo(t.Context(), dir, info, ann)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := Inspect(t.Context(), s.cfg.Images, got.Path, ann)
	if diff := cmp.Diff(got, seen); err != nil || diff != "" || !within([]string{dir}, seen.Backing[0].Path) {
		t.Errorf("error %v (-returned +seen):\n%s", err, diff)
	}
	qemuImg(t, "compare", top, got.Path)
	if ownerUID(t, got.Path) != ann.UID {
		t.Error("the copy is not the user's")
	}
}

// The file may be another one than the one that was inspected.
func TestRebaseRefusesAnotherImage(t *testing.T) {
	s := newShelf(t)
	for name, path := range map[string]string{
		"based on nothing": s.sized("a"), "no qcow2": s.raw("b", 4*sector, 510, "\x55\xaa"),
	} {
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := rebase(file, "0"); err == nil {
			t.Errorf("%s: no error", name)
		}
		_ = file.Close()
	}
}
