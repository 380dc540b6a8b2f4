package images

import (
	"path/filepath"
	"strings"
	"testing"
)

// qemu-img parses what users have written: it is the owner's process, with bounds. A
// script in its place says what it has got.
func TestQEMUImgIsBounded(t *testing.T) {
	dir := passable(t)
	write(t, filepath.Join(dir, "qemu-img"), 0o755,
		[]byte("#!/bin/sh\necho \"$(id -u) $(id -G), $(ulimit -v) KiB, $(ulimit -t) s, core $(ulimit -c), stack $(ulimit -s) KiB, $MALLOC_ARENA_MAX arena\" >&2\nexit 1\n"))
	programs = dir
	t.Cleanup(func() { programs = "" })
	const want = "54321 54321 54322, 1048576 KiB, 30 s, core 0, stack 2048 KiB, 1 arena "
	if err := runQEMUImg(t.Context(), nobody, nil, "info"); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("qemu-img is %v\nwant        %s", err, want)
	}
}

// Both may read the image, which has not changed meanwhile: so it is for nothing but
// its user that each has another copy.
func TestTwoUsersOfAnImageHaveACopyEach(t *testing.T) {
	s := newSite(t)
	path := s.sized("shared.qcow2")
	anns, _ := s.must(path, ann)
	bens, outcome := s.must(path, ben)
	if outcome.How != Copied || bens.Path == anns.Path {
		t.Errorf("ben has %s, which is %v; ann has %s", bens.Path, outcome, anns.Path)
	}
	if again, outcome := s.must(path, ben); outcome.How != Found || again.Path != bens.Path {
		t.Errorf("ben's own copy is not found again: %v", outcome)
	}
}
