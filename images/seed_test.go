package images

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/internal/filetest"
	"github.com/slurm-v/slurm-v/internal/owner"
)

// nobody is a user that the tests' files do not belong to.
var nobody = owner.Owner{Name: "alice", UID: 54321, GID: 54321, Groups: []owner.Group{{GID: 54322}}}

// passable returns an empty directory which every user may enter.
func passable(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("takes another user's rights: run as root")
	}
	return filetest.PassableDir(t)
}

func write(t *testing.T, path string, mode os.FileMode, data []byte) string {
	t.Helper()
	if err := os.WriteFile(path, data, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func testSeed(t *testing.T, dir string) Seed {
	t.Helper()
	return Seed{
		InstanceID: `4217.0 "vm2"`, Hostname: "vm2", UserData: []byte("\x1f\x8b any bytes \x00\n"),
		GuestBinary: write(t, filepath.Join(dir, "guest"), 0o755, bytes.Repeat([]byte("0123456789abcde\n"), 1000)),
	}
}

func TestSeedDiskIsReadBack(t *testing.T) {
	if _, err := exec.LookPath("xorriso"); err != nil {
		t.Skip("reads the disk with xorriso: install it")
	}
	dir := passable(t)
	seed := testSeed(t, dir)
	disk := filepath.Join(dir, "seed.iso")
	if err := WriteSeed(disk, seed, nobody); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(disk)
	if err != nil {
		t.Fatal(err)
	}
	if uid := info.Sys().(*syscall.Stat_t).Uid; info.Mode().Perm() != 0o600 || uid != nobody.UID || info.Size()%isoSector != 0 {
		t.Errorf("mode %v, owner %d, %d bytes", info.Mode(), uid, info.Size())
	}
	out := filepath.Join(dir, "out")
	text, err := exec.Command("xorriso", "-abort_on", "WARNING", "-osirrox", "on", "-indev", disk, "-pvd_info", "-extract", "/", out).CombinedOutput()
	if err != nil || !strings.Contains(string(text), "cidata") || strings.Contains(string(text), "WARNING") {
		t.Fatalf("xorriso: %v\n%s", err, text)
	}
	if diff := cmp.Diff([]string{
		"meta-data -r--------", "network-config -r--------", "slurmv-guest -r-xr-xr-x", "user-data -r--------", "vendor-data -r--------",
	}, names(t, out)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	for name, want := range map[string][]byte{
		"user-data": seed.UserData, "slurmv-guest": read(t, seed.GuestBinary), "vendor-data": vendorData(),
		"network-config": []byte(`{"config":"disabled"}`),
	} {
		if got := read(t, filepath.Join(out, name)); !bytes.Equal(got, want) {
			t.Errorf("%s has %d bytes, unlike the %d that went in", name, len(got), len(want))
		}
	}
	var meta map[string]string
	if err := json.Unmarshal(read(t, filepath.Join(out, "meta-data")), &meta); err != nil || meta["instance-id"] != seed.InstanceID || meta["local-hostname"] != "vm2" {
		t.Errorf("meta-data = %v, %v", meta, err)
	}
}

func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e.Name()+" "+info.Mode().String())
	}
	return list
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestVendorDataIsWhatCloudInitTakesApart(t *testing.T) {
	message, err := mail.ReadMessage(bytes.NewReader(vendorData()))
	if err != nil {
		t.Fatal(err)
	}
	kind, params, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/mixed" {
		t.Fatalf("type %q, %v", kind, err)
	}
	got := map[string]string{}
	for parts := multipart.NewReader(message.Body, params["boundary"]); ; {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(part)
		if err != nil {
			t.Fatal(err)
		}
		got[part.Header.Get("Content-Type")] = string(text)
	}
	want := map[string]string{"text/cloud-boothook": startGuest, "text/cloud-config": noUsers}
	if diff := cmp.Diff(want, got); diff != "" || !strings.HasPrefix(startGuest, "#!/bin/sh\n") {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
}

func TestManySeedsAtOnceAreEqual(t *testing.T) {
	dir := passable(t)
	seed := testSeed(t, dir)
	var disks sync.Map
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			path := filepath.Join(dir, string(rune('a'+i)))
			if err := WriteSeed(path, seed, nobody); err != nil {
				t.Error(err)
			}
			data, err := os.ReadFile(path)
			if err != nil {
				t.Error(err)
			}
			disks.Store(string(data), true)
		})
	}
	group.Wait()
	different := 0
	disks.Range(func(any, any) bool { different++; return true })
	if different != 1 {
		t.Errorf("%d different disks", different)
	}
}

func TestSeedsThatCannotBeWritten(t *testing.T) {
	dir := passable(t)
	good := testSeed(t, dir)
	target := filepath.Join(dir, "target")
	if err := os.Symlink(target, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		path  string
		spoil func(*Seed)
		want  string
	}{
		"over a file":             {"guest", func(*Seed) {}, "file exists"},
		"through a symbolic link": {"link", func(*Seed) {}, "file exists"},
		"without slurmv-guest":    {"new", func(s *Seed) { s.GuestBinary += "x" }, "no such file"},
		"with a directory for it": {"new", func(s *Seed) { s.GuestBinary = dir }, "is a directory"},
		"with too much user data": {"new", func(s *Seed) { s.UserData = make([]byte, maxUserData+1) }, "user data of 65537 bytes is larger than 65536"},
	}
	before := names(t, dir)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			seed := good
			tt.spoil(&seed)
			if err := WriteSeed(filepath.Join(dir, tt.path), seed, nobody); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
			if diff := cmp.Diff(before, names(t, dir)); diff != "" {
				t.Errorf("left behind (-before +after):\n%s", diff)
			}
		})
	}
}

func TestLayoutOfTheSmallestAndTheLargestFile(t *testing.T) {
	files := []isoFile{{name: "a", size: 0}, {name: "b", size: 1}, {name: "c", size: isoSector}, {name: "d", size: isoSector + 1}, {name: "e", size: 1}}
	head, starts, sectors := isoLayout("x", files)
	if want := []uint32{21, 21, 22, 23, 25}; !slices.Equal(starts, want) || sectors != 26 || len(head) != 5*isoSector {
		t.Errorf("starts %v, want %v; %d sectors; %d bytes before them", starts, want, sectors, len(head))
	}
}

func TestReadUserData(t *testing.T) {
	dir := passable(t)
	mine := write(t, filepath.Join(dir, "mine"), 0o644, []byte("#cloud-config\n"))
	if got, err := ReadUserData(t.Context(), mine, nobody); err != nil || string(got) != "#cloud-config\n" {
		t.Errorf("%q, %v", got, err)
	}
	secret := write(t, filepath.Join(dir, "secret"), 0o600, []byte("x"))
	big := write(t, filepath.Join(dir, "big"), 0o644, make([]byte, maxUserData+1))
	for path, want := range map[string]string{
		secret:     "user data " + secret + " is not readable by user alice",
		big:        "user data " + big + " is larger than 64 KiB",
		mine + "x": "user data " + mine + "x does not exist",
		// The kernel's text there depends on the reader, which would be root.
		"/proc/self/maps": "user data /proc/self/maps is the kernel's own (as in /proc and /sys), not a stored file",
	} {
		if _, err := ReadUserData(t.Context(), path, nobody); err == nil || err.Error() != want {
			t.Errorf("error = %v, want %s", err, want)
		}
	}
}
