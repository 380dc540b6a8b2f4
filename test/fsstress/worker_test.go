package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/internal/filetest"
)

func TestAWrongByteIsSeen(t *testing.T) {
	dir := t.TempDir()
	w := newWorker(dir, dir, 1)
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.files["f1"] = &file{data: []byte("right"), mode: 0o644, names: 1}
	filetest.Write(t, filepath.Join(dir, "f1"), "right")
	if err := w.checkAll(dir); err != nil {
		t.Error(err)
	}
	filetest.Write(t, filepath.Join(dir, "f1"), "ri9ht")
	if err := w.checkAll(dir); err == nil || !strings.Contains(err.Error(), "byte 2 of") {
		t.Errorf("a wrong byte is not seen: %v", err)
	}
	filetest.Write(t, filepath.Join(dir, "f2"), "")
	if _, err := w.listIn(dir, ""); err == nil {
		t.Error("a name too many is not seen")
	}
}
