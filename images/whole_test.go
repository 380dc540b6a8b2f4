package images

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/owner"
)

// What was checked is what is sent, even if the user makes another image of the file
// meanwhile.
func TestWholeSendsWhatItChecked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image")
	good := append(make([]byte, 510), 0x55, 0xaa)
	good = append(good, bytes.Repeat([]byte("slurm-v "), mostCluster/7)...) // more than is checked
	if err := os.WriteFile(path, good, 0o644); err != nil {
		t.Fatal(err)
	}
	w, err := OpenWhole(t.Context(), config.Images{Directories: []string{"/"}}, path, me)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := os.WriteFile(path, append([]byte("QFI\xfb"), good[4:]...), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 { // an upload may be begun anew
		sent, err := io.ReadAll(io.NewSectionReader(w, 0, w.Size))
		if err != nil || !bytes.Equal(sent, good) || w.Format != Raw {
			t.Errorf("%d bytes of %s, %v", len(sent), w.Format, err)
		}
	}
}

func TestWholeRefusesImagesOfSeveralFiles(t *testing.T) {
	dir := t.TempDir()
	base, top := filepath.Join(dir, "base"), filepath.Join(dir, "top")
	qemuImg(t, "create", "-f", "qcow2", base, "1M")
	qemuImg(t, "create", "-f", "qcow2", "-b", base, "-F", "qcow2", top)
	site := config.Images{Directories: []string{"/"}}
	if w, err := OpenWhole(t.Context(), site, base, me); err != nil || w.Format != QCOW2 {
		t.Errorf("the base: %v", err)
	}
	if _, err := OpenWhole(t.Context(), site, top, me); err == nil || !strings.Contains(err.Error(), "is based on another file") {
		t.Errorf("the image above it: %v", err)
	}
}

// me is this process's own user.
var me = owner.Owner{Name: "me", UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
