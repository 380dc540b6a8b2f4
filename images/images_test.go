package images

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
)

func qemuImg(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Skip("makes images with qemu-img: install qemu-utils")
	}
	if out, err := exec.Command("qemu-img", args...).CombinedOutput(); err != nil {
		t.Fatalf("qemu-img %v: %v\n%s", args, err, out)
	}
}

// A shelf is a directory with images of all kinds.
type shelf struct {
	t   *testing.T
	dir string
}

func newShelf(t *testing.T) shelf {
	return shelf{t, passable(t)}
}

func (s shelf) path(name string) string { return filepath.Join(s.dir, name) }

// qcow2 makes an image that everybody may read.
func (s shelf) qcow2(name string, args ...string) string {
	s.t.Helper()
	path := s.path(name)
	qemuImg(s.t, append(append([]string{"create", "-q", "-f", "qcow2"}, args...), path)...)
	s.mode(name, 0o644)
	return path
}

func (s shelf) sized(name string) string {
	s.t.Helper()
	path := s.path(name)
	qemuImg(s.t, "create", "-q", "-f", "qcow2", path, "10M")
	s.mode(name, 0o644)
	return path
}

func (s shelf) mode(name string, mode os.FileMode) {
	s.t.Helper()
	if err := os.Chmod(s.path(name), mode); err != nil {
		s.t.Fatal(err)
	}
}

// raw makes a raw image of size bytes with text at offset.
func (s shelf) raw(name string, size, offset int, text string) string {
	s.t.Helper()
	data := make([]byte, size)
	copy(data[offset:], text)
	return write(s.t, s.path(name), 0o644, data)
}

// patch changes bytes of an image.
func (s shelf) patch(name string, offset int64, text string) {
	s.t.Helper()
	file, err := os.OpenFile(s.path(name), os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteAt([]byte(text), offset)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		s.t.Fatal(err)
	}
}

func (s shelf) inspect(path string) (Info, error) {
	return Inspect(s.t.Context(), config.Default().Images, path, nobody)
}

func TestImagesThatCanBeUsed(t *testing.T) {
	s := newShelf(t)
	base := s.sized("base.qcow2")
	raw := s.raw("disk.raw", 3*sector-7, 510, "\x55\xaa")
	gpt := s.raw("gpt.raw", 4*sector, sector, "EFI PART")
	over := s.qcow2("over.qcow2", "-b", "base.qcow2", "-F", "qcow2")
	overRaw := s.qcow2("overraw.qcow2", "-b", raw, "-F", "raw")
	top := s.qcow2("top.qcow2", "-b", over, "-F", "qcow2")
	old := s.qcow2("old.qcow2", "-o", "compat=0.10", "-b", "base.qcow2", "-F", "qcow2")
	s.qcow2("plain.qcow2", "-o", "compat=0.10", "-b", base, "-F", "qcow2")
	s.patch("plain.qcow2", 72, "\x00\x00\x00\x00") // no extensions: the backing format is not recorded
	if err := os.Symlink(top, s.path("link")); err != nil {
		t.Fatal(err)
	}
	ten, q := int64(10<<20), func(path string) Layer { return Layer{path, QCOW2} }
	tests := map[string]struct {
		path string
		want Info
	}{
		"a qcow2 image":                     {base, Info{Layer: q(base), VirtualBytes: ten}},
		"a raw disk with a boot sector":     {raw, Info{Layer: Layer{raw, Raw}, VirtualBytes: 3 * sector}},
		"a raw disk with a GPT":             {gpt, Info{Layer: Layer{gpt, Raw}, VirtualBytes: 4 * sector}},
		"one with a relative backing file":  {over, Info{Layer: q(over), VirtualBytes: ten, Backing: []Layer{q(base)}}},
		"one on a raw disk":                 {overRaw, Info{Layer: q(overRaw), VirtualBytes: 3 * sector, Backing: []Layer{{raw, Raw}}}},
		"one on one on one, by a link":      {s.path("link"), Info{Layer: q(top), VirtualBytes: ten, Backing: []Layer{q(over), q(base)}}},
		"the old version of the format":     {old, Info{Layer: q(old), VirtualBytes: ten, Backing: []Layer{q(base)}}},
		"one that hides its backing format": {s.path("plain.qcow2"), Info{Layer: q(s.path("plain.qcow2")), VirtualBytes: ten, Backing: []Layer{q(base)}}},
		"a path that leads back and forth":  {s.dir + "/../" + filepath.Base(s.dir) + "/base.qcow2", Info{Layer: q(base), VirtualBytes: ten}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := s.inspect(tt.path)
			tt.want.Firmware = config.FirmwareBIOS
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
	if info, err := s.inspect(raw); err != nil || info.VirtualMiB() != 1 {
		t.Errorf("%d bytes are %d MiB", info.VirtualBytes, info.VirtualMiB())
	}
}

func TestImagesThatCannotBeUsed(t *testing.T) {
	s := newShelf(t)
	base := s.sized("base.qcow2")
	for _, err := range []error{
		os.Mkdir(s.path("closed"), 0o700),
		os.Mkdir(s.path("open"), 0o755),
		os.Symlink(s.path("closed/x"), s.path("intoclosed")),
		os.Symlink(s.path("gone"), s.path("dangling")),
		os.Symlink(s.path("circle"), s.path("circle")),
		unix.Mkfifo(s.path("pipe"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	secret := s.raw("closed/x", 2*sector, 510, "\x55\xaa")
	s.sized("mine.qcow2")
	s.mode("mine.qcow2", 0o600)
	s.qcow2("overmine", "-b", "mine.qcow2", "-F", "qcow2")
	s.qcow2("oversecret", "-u", "-b", secret, "-F", "raw", "-o", "size=10M")
	s.qcow2("overnothing", "-u", "-b", "nothing", "-F", "qcow2", "-o", "size=10M")
	s.qcow2("overurl", "-u", "-b", "nbd://10.0.0.1/x", "-F", "raw", "-o", "size=10M")
	s.qcow2("overjson", "-u", "-b", `json:{"driver":"raw","file":{"driver":"file","filename":"/etc/shadow"}}`, "-F", "raw", "-o", "size=10M")
	s.qcow2("overvmdk", "-u", "-b", base, "-F", "vmdk", "-o", "size=10M")
	s.qcow2("overtext", "-u", "-b", "/etc/passwd", "-o", "size=10M,compat=0.10", "-F", "raw")
	s.patch("overtext", 72, "\x00\x00\x00\x00")
	s.qcow2("loop", "-u", "-b", "loop", "-F", "qcow2", "-o", "size=10M")
	s.qcow2("data", "-o", "data_file="+s.path("data.raw"), "-o", "size=1M")
	s.sized("oneflag")
	s.patch("oneflag", 72, "\x00\x00\x00\x00\x00\x00\x00\x04") // external data, but no name of it
	s.sized("corrupt")
	s.patch("corrupt", 72, "\x00\x00\x00\x00\x00\x00\x00\x02")
	s.sized("encrypted")
	s.patch("encrypted", 32, "\x00\x00\x00\x02")
	s.sized("feature")
	s.patch("feature", 72, "\x80\x00\x00\x00\x00\x00\x00\x00")
	s.sized("huge")
	s.patch("huge", 24, "\xff\xff\xff\xff\xff\xff\xff\xff")
	s.raw("short", 100, 0, "QFI\xfb\x00\x00\x00\x03")
	s.raw("text", 4*sector, 0, "hello")
	s.raw("vmdk", 4*sector, 0, "KDMV")
	s.raw("vdi", 4*sector, 64, "\x7f\x10\xda\xbe")
	s.raw("xz", 4*sector, 0, "\xfd7zXZ\x00")
	s.raw("sif", 4*sector, 32, "SIF_MAGIC")
	s.raw("luks", 4*sector, 0, "LUKS\xba\xbe")
	s.raw("empty", 0, 0, "")
	s.raw("ctrl\x1b[2J", 4*sector, 0, "hello")

	tests := map[string]struct{ image, want string }{
		"does not exist":                     {"gone", "IMAGE does not exist"},
		"below a file":                       {"base.qcow2/x", "IMAGE does not exist"},
		"a link to nothing":                  {"dangling", "IMAGE does not exist"},
		"a circle of links":                  {"circle", "IMAGE is a symbolic link that leads in a circle"},
		"a directory":                        {"open", "IMAGE is a directory"},
		"a pipe":                             {"pipe", "IMAGE is not a regular file"},
		"not readable":                       {"mine.qcow2", "IMAGE is not readable by user alice"},
		"behind a closed directory":          {"closed/x", "IMAGE is not readable by user alice, who may not enter the directory DIR/closed"},
		"behind one by a link":               {"intoclosed", "IMAGE is not readable by user alice, who may not enter the directory DIR/closed"},
		"text":                               {"text", "IMAGE is not a disk image: neither qcow2 nor raw with a boot sector"},
		"empty":                              {"empty", "IMAGE is not a disk image: neither qcow2 nor raw with a boot sector"},
		"VMDK":                               {"vmdk", "IMAGE is a VMDK image; convert it with: qemu-img convert -O qcow2"},
		"VDI":                                {"vdi", "IMAGE is a VDI image; convert it with: qemu-img convert -O qcow2"},
		"compressed":                         {"xz", "IMAGE is compressed with xz; unpack it first"},
		"a container":                        {"sif", "IMAGE is an Apptainer container, not a disk image"},
		"LUKS":                               {"luks", "IMAGE is encrypted"},
		"encrypted qcow2":                    {"encrypted", "IMAGE is encrypted"},
		"external data":                      {"data", "IMAGE keeps its data in another file; convert it with: qemu-img convert -O qcow2"},
		"external data without a name":       {"oneflag", "IMAGE keeps its data in another file; convert it with: qemu-img convert -O qcow2"},
		"marked as corrupt":                  {"corrupt", "IMAGE is marked as corrupt; repair it with: qemu-img check -r all"},
		"cut off":                            {"short", "IMAGE is damaged: clusters of 2^0 bytes"},
		"an impossible size":                 {"huge", "IMAGE has an impossible size of 18446744073709551615 bytes"},
		"a feature that only QEMU can judge": {"feature", "IMAGE cannot be opened by QEMU: qemu-img: Could not open 'IMAGEPATH': Unsupported qcow2 feature(s): Unknown incompatible feature: 8000000000000000 (exit status 1)"},
		"a backing file that is not there":   {"overnothing", "IMAGE is based on DIR/nothing, which does not exist"},
		"a backing file of somebody else":    {"overmine", "IMAGE is based on DIR/mine.qcow2, which is not readable by user alice"},
		"a backing file in a closed place":   {"oversecret", "IMAGE is based on DIR/closed/x, which is not readable by user alice, who may not enter the directory DIR/closed"},
		"a backing file of a foreign format": {"overvmdk", `IMAGE is based on DIR/base.qcow2, which has the format "vmdk"; only qcow2 and raw are supported`},
		"a backing file that is no disk":     {"overtext", "IMAGE is based on /etc/passwd, which is not a disk image: neither qcow2 nor raw with a boot sector"},
		"a backing file on the network":      {"overurl", `IMAGE is based on "nbd://10.0.0.1/x", which is not a file`},
		"a backing file described in JSON":   {"overjson", `IMAGE is based on "json:{\"driver\":\"raw\",\"file\":{\"driver\":\"file\",\"filename\":\"/etc/shadow\"}}", which is not a file`},
		"based on itself":                    {"loop", "IMAGE is based on a chain of more than 15 files"},
		"a name that would clear the screen": {"ctrl\x1b[2J", `image "DIR/ctrl\x1b[2J" is not a disk image: neither qcow2 nor raw with a boot sector`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := s.path(tt.image)
			want := strings.NewReplacer("IMAGEPATH", path, "IMAGE", "image "+path, "DIR", s.dir).Replace(tt.want)
			_, err := s.inspect(path)
			var e *Error
			if !errors.As(err, &e) || err.Error() != want {
				t.Errorf("error\n%v\nwant\n%s", err, want)
			}
		})
	}
}

func TestTheOwnersGroupsCount(t *testing.T) {
	s := newShelf(t)
	path := s.sized("group.qcow2")
	s.mode("group.qcow2", 0o640)
	if err := os.Chown(path, 0, int(nobody.Groups[0].GID)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.inspect(path); err != nil {
		t.Errorf("as a member of the file's group: %v", err)
	}
	other := nobody
	other.Name, other.Groups = "", nil
	if _, err := Inspect(t.Context(), config.Default().Images, path, other); !errors.Is(err, fs.ErrPermission) || !strings.HasSuffix(err.Error(), "not readable by user 54321") {
		t.Errorf("as somebody else: %v", err)
	}
}

func TestTheSitesDirectories(t *testing.T) {
	s := newShelf(t)
	for _, dir := range []string{"site", "site2"} {
		if err := os.Mkdir(s.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	inside, outside := s.sized("site/a"), s.sized("site2/b")
	escape := s.qcow2("site/escape", "-b", "../site2/b", "-F", "qcow2")
	if err := errors.Join(os.Symlink(outside, s.path("site/link")), os.Symlink(s.path("site"), s.path("alias"))); err != nil {
		t.Fatal(err)
	}
	limited := config.Default()
	limited.Images.Directories = []string{s.path("alias")} // is site
	listed := limited
	listed.Images.Catalogue = map[string]config.Image{"x": {Path: escape}}
	tests := map[string]struct {
		cfg  config.Config
		path string
		want string
	}{
		"inside":                     {limited, inside, ""},
		"outside":                    {limited, outside, "image " + outside + " is not in a directory that the site allows images in: " + s.path("site")},
		"by a link":                  {limited, s.path("site/link"), "is not in a directory"},
		"based on one outside":       {limited, escape, "image " + escape + " is based on " + outside + ", which is not in a directory that the site allows images in: " + s.path("site")},
		"outside, by the catalogue":  {listed, escape, ""},
		"outside, beside the latter": {listed, outside, "is not in a directory"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Inspect(t.Context(), tt.cfg.Images, tt.path, nobody)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestInspectEndsWithItsContext(t *testing.T) {
	s := newShelf(t)
	path := s.sized("a")
	cause := errors.New("the job was cancelled")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := Inspect(ctx, config.Default().Images, path, nobody); !errors.Is(err, cause) {
		t.Errorf("error = %v", err)
	}
}

func TestResolve(t *testing.T) {
	cfg := config.Default()
	cfg.Images.Catalogue = map[string]config.Image{"rocky9": {Path: "/images/r9.qcow2"}, "debian": {Path: "/d"}}
	tests := map[string]struct{ image, want, wantErr string }{
		"a name":         {image: "rocky9", want: "/images/r9.qcow2"},
		"a path":         {image: "/home/../x", want: "/x"},
		"an unknown":     {image: "rocky", wantErr: "rocky is not in the site's catalogue (debian, rocky9) and no absolute path"},
		"nothing":        {image: "", wantErr: "no image: give one with --vm-image (catalogue: debian, rocky9)"},
		"a forged place": {image: "../x", wantErr: "../x is not in the site's catalogue"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Resolve(cfg, tt.image)
			if got != tt.want || (err == nil) != (tt.wantErr == "") || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("%q, %v; want %q, %q", got, err, tt.want, tt.wantErr)
			}
		})
	}
}

func TestCreateOverlay(t *testing.T) {
	s := newShelf(t)
	base := s.qcow2("base.qcow2", "-o", "size=1536K")
	bootable := s.raw("disk.raw", 4*sector, 510, "\x55\xaa")
	tests := map[string]struct {
		base string
		size int64
		want int64 // bytes
	}{
		"of the image's size":  {base, 0, 1536 << 10},
		"of a larger size":     {base, 20, 20 << 20},
		"of the next MiB":      {base, 2, 2 << 20},
		"on a raw disk":        {bootable, 1, 1 << 20},
		"of a raw disk's size": {bootable, 0, 4 * sector},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			info, err := s.inspect(tt.base)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(passable(t), "overlay.qcow2")
			if err := CreateOverlay(t.Context(), info, path, tt.size, nobody); err != nil {
				t.Fatal(err)
			}
			stat, err := os.Stat(path)
			if err != nil || stat.Mode().Perm() != 0o600 || stat.Sys().(*syscall.Stat_t).Uid != nobody.UID {
				t.Errorf("mode %v, owner %d, %v", stat.Mode(), stat.Sys().(*syscall.Stat_t).Uid, err)
			}
			got, err := s.inspect(path)
			want := Info{Layer: Layer{path, QCOW2}, VirtualBytes: tt.want, Backing: append([]Layer{info.Layer}, info.Backing...), Firmware: config.FirmwareBIOS}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestOverlaysThatAreRefused(t *testing.T) {
	s := newShelf(t)
	info, err := s.inspect(s.sized("base.qcow2"))
	if err != nil {
		t.Fatal(err)
	}
	closed := s.path("closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		path string
		size int64
		want string
	}{
		"smaller than the image":     {s.path("x"), 9, "has a disk of 10 MiB, and --disk-size asks for less: 9 MiB; ask for 10 or more"},
		"of a negative size":         {s.path("x"), -1, "-1 MiB is not possible"},
		"of a size that overflows":   {s.path("x"), 1 << 44, "is not possible"},
		"over a file":                {s.path("base.qcow2"), 0, "file exists"},
		"where its user cannot come": {filepath.Join(closed, "x"), 0, "Permission denied"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := CreateOverlay(t.Context(), info, tt.path, tt.size, nobody)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
			if _, err := os.Lstat(filepath.Join(filepath.Dir(tt.path), "x")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("something is left: %v", err)
			}
		})
	}
}
