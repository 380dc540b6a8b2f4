package ledger

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// One wrong number in a page is noticed before bbolt has the file.
func TestPagesThatLeadElsewhere(t *testing.T) {
	type place struct {
		pages pages
		root  []byte // the leaf page whose elements are the buckets
		jobs  []byte // the branch page of the largest of them
		free  []byte
	}
	put32 := func(at []byte, n uint32) { native.PutUint32(at, n) }
	put64 := func(at []byte, n uint64) { native.PutUint64(at, n) }
	tests := map[string]struct {
		damage func(place)
		says   string // "" for nothing
	}{
		"no damage":                               {func(place) {}, ""},
		"a key behind its page":                   {func(p place) { put32(p.root[pageHeader+4:], 1<<20) }, errOutside.Error()},
		"a key that is too long":                  {func(p place) { put32(p.root[pageHeader+8:], 1<<20) }, errOutside.Error()},
		"a value that is too long":                {func(p place) { put32(p.root[pageHeader+12:], 1<<31) }, errOutside.Error()},
		"a value too short for a bucket":          {func(p place) { put32(p.root[pageHeader+12:], 8) }, errOutside.Error()},
		"more elements than the page has room":    {func(p place) { native.PutUint16(p.root[10:], 4000) }, errOutside.Error()},
		"a page of no kind":                       {func(p place) { native.PutUint16(p.root[8:], 3) }, errOutside.Error()},
		"a page with another number":              {func(p place) { put64(p.root, 77) }, "does not say so"},
		"a page that is longer than the file":     {func(p place) { put32(p.root[12:], 1<<30) }, "longer than the file"},
		"a branch without children":               {func(p place) { native.PutUint16(p.jobs[10:], 0) }, errOutside.Error()},
		"a key of a branch behind its page":       {func(p place) { put32(p.jobs[pageHeader:], 1<<20) }, errOutside.Error()},
		"a child behind the end of the file":      {func(p place) { put64(p.jobs[pageHeader+8:], 1<<52) }, "is not in the file"},
		"a child that is a page of the head":      {func(p place) { put64(p.jobs[pageHeader+8:], 1) }, "is there twice"},
		"two children that are one":               {func(p place) { copy(p.jobs[pageHeader+8:pageHeader+16], p.jobs[pageHeader+element+8:]) }, "is there twice"},
		"more free pages than the list has":       {func(p place) { native.PutUint16(p.free[10:], 60000) }, errOutside.Error()},
		"a free page that is in use":              {func(p place) { copy(p.free[pageHeader:pageHeader+8], p.jobs[:8]) }, "lists as free"},
		"a free page behind the end of the file":  {func(p place) { put64(p.free[pageHeader:], 1<<40) }, "lists as free"},
		"a list of free pages that is none":       {func(p place) { native.PutUint16(p.free[8:], leafFlag) }, errOutside.Error()},
		"the older head damaged":                  {func(p place) { p.pages.text[olderHead(p.pages)+pageHeader+60] ^= 1 }, ""},
		"both heads damaged, which bbolt notices": {func(p place) { p.pages.text[pageHeader+60] ^= 1; p.pages.text[p.pages.size+pageHeader+60] ^= 1 }, ""},
	}
	path, whole := file(t, 60)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			text := slices.Clone(whole)
			m, size := newestMeta(text)
			p := place{pages: pages{text: text, size: size}}
			at := func(id uint64) []byte { return text[id*size:] }
			p.root, p.free = at(native.Uint64(m[16:])), at(native.Uint64(m[32:]))
			p.jobs = branchBelow(t, p.root, at)
			tt.damage(p)
			noError(t, os.WriteFile(path, text, 0o600))
			err := checkText(text)
			if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("error = %v, want %q", err, tt.says)
			}
			var damaged *damagedError
			if err := readAll(t.Context(), path); tt.says != "" && !errors.As(err, &damaged) {
				t.Errorf("the ledger opens: %v", err)
			}
		})
	}
}

// branchBelow returns a branch page that is the root of a bucket.
func branchBelow(t *testing.T, root []byte, page func(id uint64) []byte) []byte {
	t.Helper()
	for i := range countOf(root) {
		e := root[pageHeader+i*element:]
		bucket := native.Uint64(e[native.Uint32(e[4:])+native.Uint32(e[8:]):])
		if bucket != 0 && flagsOf(page(bucket)) == branchFlag {
			return page(bucket)
		}
	}
	t.Fatal("no bucket has a branch page: the file needs more jobs")
	return nil
}

// olderHead is where the page begins that has the older meta.
func olderHead(p pages) uint64 {
	first, second := metaAt(p.text, 0), metaAt(p.text, p.size)
	if native.Uint64(first[48:]) < native.Uint64(second[48:]) {
		return 0
	}
	return p.size
}

// An administrator may cut the file while it is open. bbolt then keeps its locks in this process, and others
// must not wait for them.
func TestAFileThatIsCutWhileItIsOpen(t *testing.T) {
	path, _ := file(t, 60)
	l, err := Open(t.Context(), path)
	noError(t, err)
	_, err = l.Entries()
	noError(t, err, os.Truncate(path, 2*4096))
	var damaged *damagedError
	if _, err = l.Entries(); !errors.As(err, &damaged) {
		t.Errorf("error = %v", err)
	}
	noError(t, l.Close())
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	if err := readAll(ctx, path); !errors.As(err, &damaged) {
		t.Errorf("the file stays locked: %v", err)
	}
}
