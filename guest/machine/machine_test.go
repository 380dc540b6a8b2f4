package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/guest"
)

// A double is a Machine over a directory. It records what it would have done.
type double struct {
	*Machine
	mu   sync.Mutex
	done []string
	fail map[string]error // by the first word of what is done
}

func newDouble(t *testing.T, files map[string]string) *double {
	t.Helper()
	d := &double{Machine: &Machine{system: system{root: t.TempDir()}, BootSeconds: 2.5}}
	files["etc/hostname"] += "" // makes etc
	for name, text := range files {
		path := d.path(name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d.setHostName = func(name []byte) error { return d.do("hostname %s", name) }
	d.mount = func(source, target, fstype string, flags uintptr, data string) error {
		return d.do("mount %s %s %s %#x %s", source, strings.TrimPrefix(target, d.root), fstype, flags, data)
	}
	d.run = func(_ context.Context, input, name string, args ...string) error {
		return d.do("%s", strings.TrimSpace(name+" "+strings.Join(args, " ")+" <"+input))
	}
	return d
}

func (d *double) do(format string, args ...any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	what := fmt.Sprintf(format, args...)
	d.done = append(d.done, strings.ReplaceAll(strings.TrimSuffix(what, " <"), d.root, ""))
	word, _, _ := strings.Cut(what, " ")
	return d.fail[word]
}

func (d *double) text(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(d.path(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var alice = guest.User{
	Name: "alice", UID: 4321, GID: 100, Home: "/home/alice", Shell: "/bin/bash",
	Groups: []guest.Group{{Name: "users", GID: 100}, {Name: "chem", GID: 7000}},
}

func TestSetup(t *testing.T) {
	d := newDouble(t, map[string]string{
		"etc/passwd":          "root:x:0:0:root:/root:/bin/bash\n",
		"etc/group":           "root:x:0:\nusers:x:100:\n",
		"etc/os-release":      "NAME=Test\nPRETTY_NAME=\"Test OS 1\"\n",
		"bin/bash":            "",
		"proc/self/mountinfo": "",
	})
	setup := guest.Setup{
		HostName: "vm3",
		User:     alice,
		Mounts: []guest.Mount{
			{Tag: "m1", Path: "/home/alice/job/in", ReadOnly: true},
			{Tag: "m0", Path: "/home/alice/job"},
		},
	}
	report, err := d.Setup(t.Context(), setup)
	if err != nil {
		t.Fatal(err)
	}
	if report.OS != "Test OS 1" || report.BootSeconds != 2.5 || report.Kernel == "" {
		t.Errorf("report = %+v", report)
	}
	options := " trans=virtio,version=9p2000.L,msize=262144,cache=none"
	want := []string{
		"hostname vm3",
		"modprobe -q -a 9pnet_virtio 9p",
		"mount m0 /home/alice/job 9p 0x6" + options,
		"mount m1 /home/alice/job/in 9p 0x7" + options,
	}
	if diff := cmp.Diff(want, d.done); diff != "" {
		t.Errorf("what was done differs (-want +got):\n%s", diff)
	}
	if got := d.text(t, "etc/hostname"); got != "vm3\n" {
		t.Errorf("/etc/hostname = %q", got)
	}
	if got := d.text(t, "etc/passwd"); !strings.Contains(got, "\nalice:*:4321:100::/home/alice:/bin/bash\n") {
		t.Errorf("/etc/passwd = %q", got)
	}
	if info, err := os.Stat(d.path("home/alice")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("home directory: %v, %v", info, err)
	}
	if left, _ := filepath.Glob(d.path("etc/.*")); len(left) > 0 {
		t.Errorf("left in /etc: %v", left)
	}
}

func TestSetupTwice(t *testing.T) {
	d := newDouble(t, map[string]string{
		"etc/passwd":          "",
		"proc/self/mountinfo": "36 35 0:40 / /data rw,relatime - 9p m0 rw,trans=virtio\n",
	})
	setup := guest.Setup{HostName: "vm0", User: alice, Mounts: []guest.Mount{{Tag: "m0", Path: "/data"}, {Tag: "m1", Path: "/data"}}}
	if _, err := d.Setup(t.Context(), setup); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(d.done, "\n"); strings.Contains(got, "mount m0") || !strings.Contains(got, "mount m1") {
		t.Errorf("mounted again, or another export not:\n%s", got)
	}
}

// The working directory is also at the path by which the user's shell knows it, even if this
// is the home directory.
func TestSetupBindsAnAlias(t *testing.T) {
	d := newDouble(t, map[string]string{"etc/passwd": "", "lustre/alice/x": ""})
	setup := guest.Setup{HostName: "vm0", User: alice, Mounts: []guest.Mount{
		{Path: "/lustre/alice"}, {Of: "/lustre/alice", Path: "/home/alice"}, {Of: "/lustre/none", Path: "/home/none"},
	}}
	for range 2 {
		if _, err := d.Setup(t.Context(), setup); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.RemoveAll(d.path("home")), os.MkdirAll(d.path("home"), 0o755), os.Symlink("../lustre/alice", d.path("home/alice"))); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"hostname vm0", "mount /lustre/alice /home/alice  0x1000 ", "hostname vm0"}, d.done); diff != "" {
		t.Errorf("what was done, and in a second setup, differs (-want +got):\n%s", diff)
	}
}

func TestSetupThatFails(t *testing.T) {
	ok := guest.Setup{HostName: "vm0", User: alice, Mounts: []guest.Mount{{Tag: "m0", Path: "/data"}}}
	tests := map[string]struct {
		change func(*guest.Setup)
		fail   map[string]error
		want   string
	}{
		"a host name with a space": {change: func(s *guest.Setup) { s.HostName = "a b" }, want: `"a b" is not a host name`},
		"a user name with a colon": {change: func(s *guest.Setup) { s.User.Name = "a:b" }, want: `"a:b" is not a user name`},
		"a user name of NIS":       {change: func(s *guest.Setup) { s.User.Name = "+alice" }, want: `"+alice" is not a user name`},
		"a home with a newline":    {change: func(s *guest.Setup) { s.User.Home = "/a\nb" }, want: "is not a home directory"},
		"a home without a root":    {change: func(s *guest.Setup) { s.User.Home = "home" }, want: "is not a home directory"},
		"a shell with a newline":   {change: func(s *guest.Setup) { s.User.Shell = "/a\nb" }, want: "is not a shell"},
		"a group with a comma":     {change: func(s *guest.Setup) { s.User.Groups = []guest.Group{{Name: "a,b"}} }, want: "is not a group name"},
		"a mount over /etc":        {change: func(s *guest.Setup) { s.Mounts[0].Path = "/etc" }, want: "/etc is not a place to mount at"},
		"a mount that climbs":      {change: func(s *guest.Setup) { s.Mounts[0].Path = "/data/../etc" }, want: "is not a place to mount at"},
		"a tag with an option":     {change: func(s *guest.Setup) { s.Mounts[0].Tag = "a,uid=0" }, want: "is not the tag of an export"},
		"no right to the name":     {fail: map[string]error{"hostname": unix.EPERM}, want: "set the host name vm0: operation not permitted"},
		"a kernel without 9p":      {fail: map[string]error{"mount": unix.ENODEV}, want: "mount m0 at /data: the image's kernel has neither FUSE (module fuse) nor the 9p file system"},
		"no such export":           {fail: map[string]error{"mount": unix.ENOENT}, want: "mount m0 at /data: the VM has no such export"},
		"an address that is none":  {change: func(s *guest.Setup) { s.NICs = []guest.NIC{{MAC: "zz", Address: "dhcp"}} }, want: "configure network interface zz"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDouble(t, map[string]string{"etc/passwd": ""})
			d.fail = tt.fail
			setup := ok
			setup.Mounts = []guest.Mount{ok.Mounts[0]}
			if tt.change != nil {
				tt.change(&setup)
			}
			if _, err := d.Setup(t.Context(), setup); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one that says %q", err, tt.want)
			}
		})
	}
}

// A home that a mount brings is not made, nor is anything of root's changed.
func TestNoHome(t *testing.T) {
	d := newDouble(t, map[string]string{"etc/passwd": "root:x:0:0::/root:/bin/sh\n"})
	if err := d.user(alice, []guest.Mount{{Path: "/home"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.path("home")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("home: %v", err)
	}
	before := d.text(t, "etc/passwd")
	if err := d.user(guest.User{Name: "root", Home: "/root"}, nil); err != nil {
		t.Fatal(err)
	}
	if got := d.text(t, "etc/passwd"); got != before {
		t.Errorf("/etc/passwd = %q", got)
	}
}

func TestWriteFileFollowsLinks(t *testing.T) {
	d := newDouble(t, map[string]string{"etc/real": "old\n"})
	if err := os.Symlink("real", d.path("etc/link")); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(d.path("etc/link"), "new\n", 0o644); err != nil {
		t.Fatal(err)
	}
	if got := d.text(t, "etc/real"); got != "new\n" {
		t.Errorf("the file behind the link = %q", got)
	}
}

func TestWriteFileToNowhere(t *testing.T) {
	if err := writeFile(filepath.Join(t.TempDir(), "no", "file"), "", 0o644); err == nil || !strings.Contains(err.Error(), "write /") {
		t.Errorf("error = %v", err)
	}
}

func TestCommandErrorHasLastWords(t *testing.T) {
	m := &Machine{}
	err := m.command(t.Context(), "in\n", "sh", "-c", "cat; echo first; echo last >&2; exit 3")
	if err == nil || err.Error() != "run sh: exit status 3: last" {
		t.Errorf("error = %v", err)
	}
}
