package template

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A user's copy of a template: its memory and disks are the user's alone, and what
// libvirt obeys is root's.
func TestFilesOfATemplate(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("gives files to another user: run as root")
	}
	n := newNode(t, 1<<30)
	site := Template{Dir: t.TempDir()}
	for _, file := range []string{savedFile, memoryFile, diskFile, seedFile} {
		if err := os.WriteFile(filepath.Join(site.Dir, file), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	draft, err := n.Draft(t.Context(), Own(1001), shape("/a"), "1.0", func(string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := draft.CopyFrom(t.Context(), site, 1001); err != nil {
		t.Fatal(err)
	}
	if err := draft.Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = draft.Close()

	type access struct {
		mode os.FileMode
		uid  uint32
	}
	got := map[string]access{}
	for _, file := range []string{savedFile, memoryFile, diskFile, seedFile, aboutFile} {
		info, err := os.Stat(filepath.Join(draft.Final().Dir, file))
		if err != nil {
			t.Fatal(err)
		}
		got[file] = access{info.Mode().Perm(), info.Sys().(*syscall.Stat_t).Uid}
	}
	want := map[string]access{
		savedFile: {0o600, 0}, aboutFile: {0o600, 0},
		memoryFile: {0o600, 1001}, diskFile: {0o600, 1001}, seedFile: {0o600, 1001},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(access{})); diff != "" {
		t.Errorf("files differ (-want +got):\n%s", diff)
	}
}
