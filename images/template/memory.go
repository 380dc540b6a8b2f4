package template

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// QEMU's stream is a head and then sections. The first section is the memory: a list of its
// blocks, and then, in any number of further parts, their pages. The devices follow, which
// this code only copies. Numbers are big-endian. See migration/savevm.c and migration/ram.c
// of QEMU.
const (
	streamMagic   = 0x5145564d
	streamVersion = 3

	sectionStart  = 0x01
	sectionPart   = 0x02
	sectionEnd    = 0x03
	configuration = 0x07
	command       = 0x08 // to the receiver; QEMU 10 sends "the rest follows" before the last pages
	sectionFooter = 0x7e

	// Flags in the low bits of a page's offset.
	flagZero     = 0x02
	flagMemSize  = 0x04
	flagPage     = 0x08
	flagEnd      = 0x10
	flagContinue = 0x20

	pageSize = 4096
	maxName  = 4096

	// maxSends bounds how often each page may come, on average. A page comes again if it
	// has changed.
	maxSends = 8
)

// A ramBlock is the guest memory in a stream, as QEMU calls it.
type ramBlock struct {
	Block string // its name in the stream
	Name  string // its new name
	Size  int64  // its size in bytes; the stream must say the same, since users could forge it
	Pages pageWriter
}

// A pageWriter takes pages at their places in the guest's memory. Pages that it is not
// given are zero.
type pageWriter interface {
	io.WriterAt
	Truncate(size int64) error
}

// split copies QEMU's stream from r to w without the pages of the guest's memory, which it
// writes to memory.Pages. QEMU can restore such a stream if the memory is already there.
// It understands only an uncompressed stream from one connection, and returns an error
// for anything else.
func split(w io.Writer, r io.Reader, memory ramBlock) error {
	s := &splitter{in: bufio.NewReaderSize(r, 1<<20), out: bufio.NewWriterSize(w, 1<<20), ramBlock: memory}
	err := s.split()
	if err == nil {
		_, err = s.in.WriteTo(s.out)
	}
	if err == nil {
		err = s.out.Flush()
	}
	if err != nil {
		return fmt.Errorf("take the memory out of a saved VM: %w", err)
	}
	return nil
}

type splitter struct {
	ramBlock
	in      *bufio.Reader
	out     *bufio.Writer
	found   bool   // the memory is among the blocks
	section uint32 // number of the memory's section
	block   string // the block of the present pages
	sent    int64  // how many pages of the memory have come
	written []bool // whether a page was written
	err     error  // the first error
}

// split reads up to the end of the memory's section.
func (s *splitter) split() error {
	s.expect("magic", uint64(s.copy32()), streamMagic)
	s.expect("version", uint64(s.copy32()), streamVersion)
	s.expect("section", uint64(s.copy8()), configuration)
	s.copyBytes(int(s.copy32())) // the machine's name
	s.expect("section", uint64(s.copy8()), sectionStart)
	s.section = s.copy32()
	if name := s.copyName(); name != "ram" && s.err == nil {
		return fmt.Errorf("the first section is %q", name)
	}
	s.copyBytes(8) // instance and version
	s.blocks()
	s.expect("end of blocks", s.copy64(), flagEnd)
	s.footer()
	s.written = make([]bool, s.Size/pageSize)
	for last := false; !last && s.err == nil; {
		last = s.part()
	}
	if s.err == nil && !s.found {
		return fmt.Errorf("it has no memory %q", s.Block)
	}
	if s.err == nil {
		s.err = s.Pages.Truncate(s.Size)
	}
	return s.err
}

// part reads one part of the memory, or a command between parts. It reports whether the
// part was the last.
func (s *splitter) part() bool {
	kind := s.copy8()
	switch kind {
	case command:
		s.copyBytes(2) // which
		s.copyBytes(int(s.copy16()))
		return false
	case sectionPart, sectionEnd:
	default:
		s.fail("section", uint64(kind))
	}
	s.expect("section's number", uint64(s.copy32()), uint64(s.section))
	s.pages()
	s.footer()
	return kind == sectionEnd
}

// blocks reads the list of blocks, and renames the memory.
func (s *splitter) blocks() {
	total := s.copy64()
	if total&(pageSize-1) != flagMemSize {
		s.fail("size of memory", total)
	}
	left := int64(total &^ (pageSize - 1))
	for left > 0 && s.err == nil {
		name := s.readName()
		isMemory := name == s.Block
		if isMemory {
			s.write(nameBytes(s.Name))
		} else {
			s.write(nameBytes(name))
		}
		size := int64(s.copy64())
		if size <= 0 || size > left {
			s.fail("size of "+name, uint64(size))
		}
		if left -= size; isMemory {
			s.expect("size of memory", uint64(size), uint64(s.Size))
			s.found = true
		}
	}
}

// pages reads the pages of one part, and passes on those of other blocks.
func (s *splitter) pages() {
	for s.err == nil {
		head := s.read(8)
		where := binary.BigEndian.Uint64(head)
		offset, flags := where&^(pageSize-1), where&(pageSize-1)
		if flags == flagEnd {
			s.write(head)
			return
		}
		if flags&flagContinue == 0 {
			s.block = s.readName()
			head = append(head, nameBytes(s.block)...)
		}
		page := s.page(flags &^ flagContinue)
		if s.block != s.Block {
			s.write(append(head, page...))
		} else if s.err == nil {
			s.keep(offset, page)
		}
	}
}

// page reads a page, or the one byte that fills all of it.
func (s *splitter) page(flags uint64) []byte {
	switch flags {
	case flagZero:
		return s.read(1)
	case flagPage:
		return s.read(pageSize)
	}
	s.fail("kind of page", flags)
	return nil
}

// keep writes a page of the memory to its place. A zero page is skipped, unless the page
// was written before.
func (s *splitter) keep(offset uint64, page []byte) {
	number := offset / pageSize
	if number >= uint64(len(s.written)) {
		s.fail("place of a page", offset)
		return
	}
	if s.sent++; s.sent > maxSends*int64(len(s.written)) {
		s.fail("number of pages", uint64(s.sent))
		return
	}
	if len(page) == 1 {
		if page[0] == 0 && !s.written[number] {
			return
		}
		page = bytes.Repeat(page, pageSize)
	}
	s.written[number] = true
	_, s.err = s.Pages.WriteAt(page, int64(offset))
}

func (s *splitter) footer() {
	s.expect("section's end", uint64(s.copy8()), sectionFooter)
	s.expect("section's number", uint64(s.copy32()), uint64(s.section))
}

func (s *splitter) fail(what string, value uint64) {
	if s.err == nil {
		s.err = fmt.Errorf("%s is %#x, which is not understood", what, value)
	}
}

func (s *splitter) expect(what string, value, want uint64) {
	if value != want {
		s.fail(what, value)
	}
}

// read returns n bytes; zeros after an error.
func (s *splitter) read(n int) []byte {
	b := make([]byte, n)
	if s.err == nil {
		if _, s.err = io.ReadFull(s.in, b); errors.Is(s.err, io.EOF) {
			s.err = io.ErrUnexpectedEOF
		}
	}
	return b
}

func (s *splitter) write(b []byte) {
	if s.err == nil {
		_, s.err = s.out.Write(b)
	}
}

func (s *splitter) copyBytes(n int) []byte {
	if n > maxName {
		s.fail("length", uint64(n))
		n = 0
	}
	b := s.read(n)
	s.write(b)
	return b
}

func (s *splitter) copy8() byte      { return s.copyBytes(1)[0] }
func (s *splitter) copy16() uint16   { return binary.BigEndian.Uint16(s.copyBytes(2)) }
func (s *splitter) copy32() uint32   { return binary.BigEndian.Uint32(s.copyBytes(4)) }
func (s *splitter) copy64() uint64   { return binary.BigEndian.Uint64(s.copyBytes(8)) }
func (s *splitter) readName() string { return string(s.read(int(s.read(1)[0]))) }

func (s *splitter) copyName() string {
	name := s.readName()
	s.write(nameBytes(name))
	return name
}

func nameBytes(name string) []byte { return append([]byte{byte(len(name))}, name...) }
