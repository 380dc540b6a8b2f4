package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// bbolt believes the numbers in the pages of its file: where a key lies, how long it is, which page comes
// next. In a damaged file they lead anywhere in the process's memory, and Go's garbage collector then ends
// the process, which nobody can catch. So all pages are looked through before bbolt has the file. They
// are as bbolt's internal/common has them:
//
//	page            id uint64, flags uint16, count uint16, overflow uint32 (further pages), elements
//	element, leaf   flags uint32, pos uint32 (from the element on), key uint32, value uint32 (lengths)
//	element, branch pos uint32, key uint32 (length), page uint64
//	bucket (value)  root uint64, sequence uint64; with root 0 a leaf page follows
//	free pages      count uint16, or 0xffff and a uint64, then their ids, uint64 each
//	meta            magic, version, size of pages, flags uint32; root, sequence, free pages, number of
//	                pages, transaction uint64; checksum uint64 (FNV-1a of what is before)
const (
	pageHeader   = 16
	element      = 16
	bucketHeader = 16
	metaSummed   = 56
	metaEnd      = pageHeader + metaSummed + 8
	metaMagic    = 0xED0CDAED
	branchFlag   = 0x01
	leafFlag     = 0x02
	freeFlag     = 0x10
	bucketFlag   = 0x01 // of an element
	noFreePages  = math.MaxUint64
)

var native = binary.NativeEndian

// checkPages returns an error if the file's pages lead out of it, or twice to the same page. It leaves a
// file to bbolt that has no head which bbolt takes.
func checkPages(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	text, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map %s: %w", f.Name(), err)
	}
	defer func() { _ = unix.Munmap(text) }()
	if err := checkText(text); err != nil {
		return damaged(fmt.Errorf("it is damaged: %w", err))
	}
	return nil
}

func checkText(text []byte) error {
	m, size := newestMeta(text)
	if m == nil {
		return nil
	}
	number := native.Uint64(m[40:])
	if size < metaEnd || number < 2 || number > uint64(len(text))/size {
		return fmt.Errorf("it has fewer than its %d pages of %d bytes", number, size)
	}
	p := pages{text, size, make([]bool, number)}
	p.seen[0], p.seen[1] = true, true
	if err := p.tree(native.Uint64(m[16:])); err != nil {
		return err
	}
	if free := native.Uint64(m[32:]); free != noFreePages {
		return p.free(free)
	}
	return nil
}

// newestMeta returns the valid meta of the last transaction, and the size of pages; nil if none is valid.
// The second one is behind the first page, whose size is in the first, if that is valid.
func newestMeta(text []byte) (newest []byte, size uint64) {
	first := metaAt(text, 0)
	if first != nil {
		newest, size = first, uint64(native.Uint32(first[8:]))
	}
	for at := uint64(1024); at <= 1024<<14; at *= 2 {
		m := metaAt(text, at)
		if m == nil || uint64(native.Uint32(m[8:])) != at || size != 0 && size != at {
			continue
		}
		if newest == nil || native.Uint64(m[48:]) > native.Uint64(newest[48:]) {
			newest = m
		}
		return newest, at
	}
	return newest, size
}

// metaAt returns the meta in the page at a place; nil if it is not valid.
func metaAt(text []byte, at uint64) []byte {
	if at+metaEnd > uint64(len(text)) {
		return nil
	}
	m := text[at+pageHeader : at+metaEnd]
	sum := fnv.New64a()
	sum.Write(m[:metaSummed])
	if native.Uint32(m) != metaMagic || native.Uint64(m[metaSummed:]) != sum.Sum64() {
		return nil
	}
	return m
}

// pages are those of a file.
type pages struct {
	text []byte
	size uint64 // of a page
	seen []bool // what has led to a page; as many as there are
}

var errOutside = errors.New("leads out of it")

// take returns a page with those that belong to it. Nothing else may lead to them.
func (p pages) take(id uint64) ([]byte, error) {
	if err := p.once(id); err != nil {
		return nil, err
	}
	page := p.text[id*p.size:]
	further := uint64(native.Uint32(page[12:]))
	if native.Uint64(page) != id || further >= uint64(len(p.seen))-id {
		return nil, fmt.Errorf("page %d does not say so, or is longer than the file", id)
	}
	for one := id + 1; one <= id+further; one++ {
		if err := p.once(one); err != nil {
			return nil, err
		}
	}
	return page[:(further+1)*p.size], nil
}

func (p pages) once(id uint64) error {
	if id >= uint64(len(p.seen)) || p.seen[id] {
		return fmt.Errorf("page %d is there twice, or is not in the file", id)
	}
	p.seen[id] = true
	return nil
}

// tree checks a page of a tree, and those below.
func (p pages) tree(id uint64) error {
	page, err := p.take(id)
	if err != nil {
		return err
	}
	each := p.leaf
	if flagsOf(page) == branchFlag {
		each = p.branch
	}
	if err := each(page); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

func flagsOf(page []byte) uint16 { return native.Uint16(page[8:]) }
func countOf(page []byte) uint64 { return uint64(native.Uint16(page[10:])) }

func (p pages) branch(page []byte) error {
	count := countOf(page)
	if count == 0 || pageHeader+count*element > uint64(len(page)) {
		return errOutside
	}
	for at := uint64(pageHeader); at < pageHeader+count*element; at += element {
		if _, err := within(page, at+uint64(native.Uint32(page[at:])), native.Uint32(page[at+4:])); err != nil {
			return err
		}
		if err := p.tree(native.Uint64(page[at+8:])); err != nil {
			return err
		}
	}
	return nil
}

// leaf checks a leaf page, also one in the value of a bucket, and the buckets in it.
func (p pages) leaf(page []byte) error {
	count := countOf(page)
	if flagsOf(page) != leafFlag || pageHeader+count*element > uint64(len(page)) {
		return errOutside
	}
	for at := uint64(pageHeader); at < pageHeader+count*element; at += element {
		key := at + uint64(native.Uint32(page[at+4:]))
		length := native.Uint32(page[at+8:])
		if _, err := within(page, key, length); err != nil {
			return err
		}
		value, err := within(page, key+uint64(length), native.Uint32(page[at+12:]))
		if err == nil && native.Uint32(page[at:])&bucketFlag != 0 {
			err = p.bucket(value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// within returns a part of a page.
func within(page []byte, at uint64, length uint32) ([]byte, error) {
	if at+uint64(length) > uint64(len(page)) {
		return nil, errOutside
	}
	return page[at : at+uint64(length)], nil
}

func (p pages) bucket(value []byte) error {
	if len(value) < bucketHeader {
		return errOutside
	}
	if root := native.Uint64(value); root != 0 {
		return p.tree(root)
	}
	if len(value) < bucketHeader+pageHeader {
		return errOutside
	}
	return p.leaf(value[bucketHeader:])
}

// free checks the list of free pages: bbolt writes into them.
func (p pages) free(id uint64) error {
	page, err := p.take(id)
	if err != nil {
		return err
	}
	ids, count := page[pageHeader:], countOf(page)
	if count == math.MaxUint16 {
		ids, count = page[pageHeader+8:], native.Uint64(page[pageHeader:])
	}
	if flagsOf(page) != freeFlag || count > uint64(len(ids)/8) {
		return fmt.Errorf("page %d: %w", id, errOutside)
	}
	for ; count > 0; count-- {
		if err := p.once(native.Uint64(ids)); err != nil {
			return fmt.Errorf("page %d lists as free: %w", id, err)
		}
		ids = ids[8:]
	}
	return nil
}
