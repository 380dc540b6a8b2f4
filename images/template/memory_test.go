package template

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"strings"
	"testing"
)

// A stream is built as QEMU writes one.
type stream struct{ bytes.Buffer }

func (s *stream) b(v ...byte) *stream   { s.Write(v); return s }
func (s *stream) u32(v uint32) *stream  { s.Write(binary.BigEndian.AppendUint32(nil, v)); return s }
func (s *stream) u64(v uint64) *stream  { s.Write(binary.BigEndian.AppendUint64(nil, v)); return s }
func (s *stream) name(n string) *stream { s.Write(nameBytes(n)); return s }
func (s *stream) end() *stream          { return s.u64(flagEnd).b(sectionFooter).u32(2) }
func (s *stream) page(fill byte) *stream {
	s.Write(bytes.Repeat([]byte{fill}, pageSize))
	return s
}

// head is a stream up to the pages, with a memory of four pages of that name, and a ROM.
func head(memory string) *stream { return headOf(memory, 4) }

func headOf(memory string, pages uint64) *stream {
	s := &stream{}
	s.u32(streamMagic).u32(streamVersion).b(configuration).u32(6).WriteString("pc-q35")
	s.b(sectionStart).u32(2).name("ram").u32(0).u32(4)
	return s.u64((pages+1)*pageSize | flagMemSize).name(memory).u64(pages * pageSize).name("pc.rom").u64(pageSize).end()
}

// saved is a whole stream: page 0 is sent twice and zero in the end, page 1 is zero, page 2
// is not, and page 3 was not zero at first. A command comes before the last pages.
func saved() *stream { return savedOf(4) }

func savedOf(pages uint64) *stream {
	s := headOf("pc.ram", pages).b(sectionPart).u32(2)
	s.u64(0 | flagPage).name("pc.ram").page(7)
	s.u64(pageSize | flagZero | flagContinue).b(0)
	s.u64(0 | flagPage).name("pc.rom").page(9).end()
	s.b(command, 0, 11, 0, 2, 'o', 'k')
	s.b(sectionEnd).u32(2)
	s.u64(2*pageSize | flagPage).name("pc.ram").page(8)
	s.u64(0 | flagZero | flagContinue).b(0)
	s.u64(3*pageSize | flagZero | flagContinue).b(0xff).end()
	s.WriteString("devices")
	return s
}

type inMemory struct{ data []byte }

func (m *inMemory) WriteAt(p []byte, at int64) (int, error) {
	m.grow(at + int64(len(p)))
	return copy(m.data[at:], p), nil
}

func (m *inMemory) Truncate(size int64) error { m.grow(size); m.data = m.data[:size]; return nil }

func (m *inMemory) grow(size int64) {
	if more := size - int64(len(m.data)); more > 0 {
		m.data = append(m.data, make([]byte, more)...)
	}
}

func TestSplit(t *testing.T) {
	memory := &inMemory{}
	var rest bytes.Buffer
	if err := split(&rest, saved(), ramBlock{"pc.ram", "warm.ram", 4 * pageSize, memory}); err != nil {
		t.Fatal(err)
	}
	want := &stream{}
	for _, fill := range []byte{0, 0, 8, 0xff} {
		want.page(fill)
	}
	if !bytes.Equal(memory.data, want.Bytes()) {
		t.Error("the memory is not what was sent last")
	}
	left := head("warm.ram").b(sectionPart).u32(2)
	left.u64(0 | flagPage).name("pc.rom").page(9).end()
	left.b(command, 0, 11, 0, 2, 'o', 'k')
	left.b(sectionEnd).u32(2).end().WriteString("devices")
	if !bytes.Equal(rest.Bytes(), left.Bytes()) {
		t.Errorf("what is left of the stream:\n%q\nwant\n%q", rest.Bytes(), left.Bytes())
	}
}

func TestSplitRefuses(t *testing.T) {
	tests := map[string]struct {
		stream io.Reader
		want   string
	}{
		"nothing":                 {&stream{}, "EOF"},
		"half a stream":           {io.LimitReader(saved(), 9000), "EOF"},
		"another format":          {(&stream{}).u32(streamMagic).u32(4).page(0), "version is 0x4"},
		"no configuration":        {(&stream{}).u32(streamMagic).u32(3).b(sectionStart).page(0), "section is 0x1"},
		"no such memory":          {strings.NewReader(strings.ReplaceAll(saved().String(), "pc.ram", "pc.rum")), `no memory "pc.ram"`},
		"a page outside":          {head("pc.ram").b(sectionEnd).u32(2).u64(9*pageSize | flagPage).name("pc.ram").page(1).end(), "place of a page"},
		"a terabyte":              {terabyte(), "size of memory is 0x10000000000"},
		"fewer than there are":    {savedOf(3), "size of memory is 0x3000"},
		"a page again and again":  {again(), "number of pages"},
		"compressed pages":        {head("pc.ram").b(sectionEnd).u32(2).u64(0 | 0x100).name("pc.ram").page(1), "kind of page is 0x100"},
		"another section between": {head("pc.ram").b(sectionPart).u32(3).page(0), "section's number is 0x3"},
		"an unknown section":      {head("pc.ram").b(0x09).page(0), "section is 0x9"},
		"a command without end":   {head("pc.ram").b(command, 0, 11, 0xff, 0xff).page(0).page(0), "length is 0xffff"},
		"blocks beyond the sum":   {strings.NewReader(strings.Replace(head("pc.ram").String(), "\x00\x00\x40\x00", "\x00\x99\x40\x00", 1)), "size of pc.ram"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			memory := &bounded{}
			err := split(io.Discard, tt.stream, ramBlock{"pc.ram", "warm.ram", 4 * pageSize, memory})
			if err == nil || !strings.Contains(err.Error(), tt.want) || memory.most > 4*pageSize {
				t.Errorf("error = %v, want %q in it; the last page ends at %d", err, tt.want, memory.most)
			}
		})
	}
}

// terabyte is a stream of some hundred bytes that would become a file of a terabyte: a
// page that has the same byte everywhere is nine bytes of the stream.
func terabyte() *stream {
	s := headOf("pc.ram", 1<<28).b(sectionEnd).u32(2)
	return s.u64(1<<40 - pageSize | flagZero).name("pc.ram").b(1).end()
}

func again() *stream {
	s := head("pc.ram").b(sectionEnd).u32(2).u64(0 | flagZero).name("pc.ram").b(1)
	for range 1000 {
		s.u64(0 | flagZero | flagContinue).b(1)
	}
	return s.end()
}

// Whatever comes, it ends without a panic, and no page lies outside of the memory.
func FuzzSplit(f *testing.F) {
	f.Add(saved().Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		memory := &bounded{}
		_ = split(io.Discard, bytes.NewReader(data), ramBlock{"pc.ram", "warm.ram", 4 * pageSize, memory})
		if memory.most > 4*pageSize || memory.size > 4*pageSize {
			t.Errorf("a page ends at %d in a memory of %d", memory.most, memory.size)
		}
	})
}

// bounded notes how far pages have gone.
type bounded struct{ most, size int64 }

func (b *bounded) WriteAt(p []byte, at int64) (int, error) {
	b.most = max(b.most, at+int64(len(p)))
	return len(p), nil
}

func (b *bounded) Truncate(size int64) error { b.size = size; return nil }

// TakeMemory turns a file saved by libvirt into a memory file with holes and a rest with
// the same description. A copy of the template for another user is equal.
func TestTakeMemory(t *testing.T) {
	n := newNode(t, 1<<30)
	begin := func(whose Whose) *Draft {
		t.Helper()
		of := shape("/a")
		of.Memory = 1
		d, err := n.Draft(t.Context(), whose, of, "1.0", func(string) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	draft := begin(Site)
	file := append(written(t, SaveFile{XML: []byte("<domain/>")}), savedOf(256).Bytes()...)
	for path, data := range map[string][]byte{draft.Saved(): file, draft.Disk(): nil, draft.Seed(): []byte("seed")} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := draft.TakeMemory("pc.ram", "warm.ram", os.Getuid()); err != nil {
		t.Fatal(err)
	}
	mine := begin(Own(7))
	if err := mine.CopyFrom(t.Context(), draft.Template, os.Getuid()); err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string]*Draft{"made": draft, "copied": mine} {
		memory, err := os.ReadFile(d.Memory())
		if err != nil || len(memory) != 1<<20 || memory[2*pageSize] != 8 || memory[pageSize] != 0 {
			t.Errorf("%s: a memory of %d bytes: %v", name, len(memory), err)
		}
		rest, err := os.ReadFile(d.Saved())
		if err != nil || !bytes.Contains(rest, []byte("<domain/>")) || !bytes.HasSuffix(rest, []byte("devices")) || bytes.Contains(rest, []byte("pc.ram")) {
			t.Errorf("%s: what is left is %q: %v", name, rest, err)
		}
	}
	if info, err := os.Stat(mine.Memory()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("memory: %v, %v", info, err)
	}
}
