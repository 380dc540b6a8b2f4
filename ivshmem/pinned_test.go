package ivshmem

import (
	"bytes"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A VF that may write to a region has its pages pinned, and keeps them when the file is
// truncated. A pipe that contains the pages stands for the VF here.
func TestRemoveLeavesNothingInPagesThatAreHeld(t *testing.T) {
	n := someNode(t)
	r, _ := make1(t, n, 0)
	page := mapped(t, n, r)[:os.Getpagesize()]
	copy(page, "a secret")
	held := hold(t, page)
	before := hold(t, page)
	if got := drain(t, before); !bytes.HasPrefix(got, []byte("a secret")) {
		t.Fatalf("the pipe does not hold the page: %q", got[:8])
	}
	if err := n.Remove(t.Context(), r, me.UID); err != nil {
		t.Fatal(err)
	}
	if got := drain(t, held); !allZero(got) {
		t.Errorf("the page that is held still says %q", got[:8])
	}
}

// hold returns the read end of a pipe that contains the page.
func hold(t *testing.T, page []byte) *os.File {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	iov := unix.Iovec{Base: &page[0]}
	iov.SetLen(len(page))
	if n, err := unix.Vmsplice(int(in.Fd()), []unix.Iovec{iov}, 0); err != nil || n != len(page) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}

func drain(t *testing.T, pipe *os.File) []byte {
	t.Helper()
	got, err := io.ReadAll(pipe)
	if err != nil {
		t.Fatal(err)
	}
	return got
}
