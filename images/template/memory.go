package template

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// QEMU's stream is a head and then sections. The first one is of the memory: which blocks
// there are, and then in any number of further parts their pages. What follows are the
// devices, and is of no interest here. Numbers are big-endian. See migration/savevm.c and
// migration/ram.c of QEMU.
const (
	streamMagic   = 0x5145564d
	streamVersion = 3

	sectionStart  = 0x01
	sectionPart   = 0x02
	sectionEnd    = 0x03
	configuration = 0x07
	sectionFooter = 0x7e

	// In the low bits of a page's offset.
	flagZero     = 0x02
	flagMemSize  = 0x04
	flagPage     = 0x08
	flagEnd      = 0x10
	flagContinue = 0x20

	pageSize = 4096
	maxName  = 4096

	// maxSends is how often each page may come, on average: again if it has changed.
	maxSends = 8
)

// A RAMBlock is the guest memory in a stream, as QEMU calls it.
type RAMBlock struct {
	Block string // the name that it has in the stream
	Name  string // and the one that it gets
	Size  int64  // bytes that it must have: what the stream says is a user's word
	Pages PageWriter
}

// A PageWriter takes pages at their places in the guest's memory. What it has not been
// given is zero.
type PageWriter interface {
	io.WriterAt
	Truncate(size int64) error
}

// Split copies QEMU's stream from r to w without the pages of the guest's memory, which go
// to memory.Pages. QEMU restores such a stream where that memory is there already. What is
// not in the stream as it should be is an error: only a stream without compression, from
// one connection, is understood.
func Split(w io.Writer, r io.Reader, memory RAMBlock) error {
	s := &splitter{in: bufio.NewReaderSize(r, 1<<20), out: bufio.NewWriterSize(w, 1<<20), RAMBlock: memory}
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
	RAMBlock
	in      *bufio.Reader
	out     *bufio.Writer
	found   bool   // the memory is among the blocks
	section uint32 // number of the memory's section
	block   string // of which pages come
	sent    int64  // pages of the memory that have come
	written []bool // which pages are not zero
	err     error  // the first of all
}

// split reads up to the end of the memory.
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
		kind := s.copy8()
		last = kind == sectionEnd
		if kind != sectionPart && !last {
			s.fail("section", uint64(kind))
		}
		s.expect("section's number", uint64(s.copy32()), uint64(s.section))
		s.pages()
		s.footer()
	}
	if s.err == nil && !s.found {
		return fmt.Errorf("it has no memory %q", s.Block)
	}
	if s.err == nil {
		s.err = s.Pages.Truncate(s.Size)
	}
	return s.err
}

// blocks reads the list of blocks, and gives the memory its new name.
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

// pages reads pages up to the end of a section, and passes on those that are not of the
// memory.
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

// page reads what there is of a page: all of it, or the byte that all of it is.
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

// keep puts a page of the memory where it belongs. One that was sent before and has become
// zero is written like any other.
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

// read returns n bytes, of zero after an error.
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
func (s *splitter) copy32() uint32   { return binary.BigEndian.Uint32(s.copyBytes(4)) }
func (s *splitter) copy64() uint64   { return binary.BigEndian.Uint64(s.copyBytes(8)) }
func (s *splitter) readName() string { return string(s.read(int(s.read(1)[0]))) }

func (s *splitter) copyName() string {
	name := s.readName()
	s.write(nameBytes(name))
	return name
}

func nameBytes(name string) []byte { return append([]byte{byte(len(name))}, name...) }
