package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slurm-v/slurm-v/internal/durable"
)

var unexported = cmp.AllowUnexported(contents{})

// sample is a journal in which every operation occurs.
func sample(t testing.TB) []byte {
	t.Helper()
	var lines []byte
	for _, e := range []entry{
		{Op: opHolder, Holder: &Holder{PID: 1, Start: 2}},
		{Op: opHeader, Header: &Header{Version: version, Job: job.Job, Restart: job.Restart, Node: "n1"}},
		{Op: opIntend, Kind: "tap", Name: "a", Data: []byte(`{"x":1}`)},
		{Op: opDone, Kind: "tap", Name: "a"},
		{Op: opHolder, Holder: &Holder{PID: 3, Start: 4}},
		{Op: opIntend, Kind: "tap", Name: "b"},
		{Op: opUndone, Kind: "tap", Name: "a"},
	} {
		lines = add(t, lines, int64(len(lines)), e)
	}
	return lines
}

// add adds a line, at whose writing the file was on disk up to synced.
func add(t testing.TB, lines []byte, synced int64, e entry) []byte {
	t.Helper()
	e.Synced = &synced
	line, err := encode(e)
	if err != nil {
		t.Fatal(err)
	}
	return append(lines, line...)
}

// whole returns how many bytes of text are whole lines.
func whole(text []byte) int64 { return int64(bytes.LastIndexByte(text, '\n') + 1) }

func TestTruncationAtEveryByteGivesThePrefix(t *testing.T) {
	text := sample(t)
	for n := range len(text) + 1 {
		got, err := parse(text[:n])
		want, wantErr := parse(text[:whole(text[:n])])
		if err != nil || wantErr != nil || got.size != whole(text[:n]) {
			t.Fatalf("%d bytes: errors %v and %v, size %d", n, err, wantErr, got.size)
		}
		if diff := cmp.Diff(want, got, unexported); diff != "" {
			t.Fatalf("%d bytes do not read like their whole lines (-want +got):\n%s", n, diff)
		}
	}
}

// Opening takes several fsyncs, so this tries fewer lengths; the test above tries all.
func TestOpenAfterACrash(t *testing.T) {
	text := sample(t)
	state := t.TempDir()
	if err := durable.MakeDirs(Dir(state, job), 0o711); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(Dir(state, job), fileName)
	for n := 0; n <= len(text); n += 17 {
		if err := os.WriteFile(path, text[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		want, _ := parse(text[:n])
		j, err := Open(state, job)
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if want.header.Version != 0 {
			err = j.Intend("new", "x", nil)
		}
		if err = errors.Join(err, j.Close()); err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		got, err := Read(state, job)
		if err != nil || got.Header != want.header {
			t.Fatalf("%d bytes: header %+v, error %v", n, got.Header, err)
		}
		if want.header.Version != 0 {
			want.held = append(want.held, Record{Kind: "new", Name: "x"})
		}
		if diff := cmp.Diff(want.held, got.Held, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%d bytes, then a record (-want +got):\n%s", n, diff)
		}
	}
}

func TestATailThatIsNotALineIsIgnored(t *testing.T) {
	text := sample(t)
	want, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	for name, tail := range map[string]string{
		"zeros, as after a power cut": strings.Repeat("\x00", 4096),
		"a line whose checksum fails": "00000000 {}\n",
		"a word":                      "x",
	} {
		got, err := parse(append(slices.Clone(text), tail...))
		if diff := cmp.Diff(want, got, unexported); err != nil || diff != "" {
			t.Errorf("%s: error %v, (-want +got):\n%s", name, err, diff)
		}
	}
}

func TestEverySpoiltByteBeforeTheLastLineIsNoticed(t *testing.T) {
	text := sample(t)
	last := whole(text[:len(text)-1])
	for i := range last - 1 { // without its newline, the damaged line would be part of the last
		spoilt := slices.Clone(text)
		spoilt[i] ^= 0x20
		c, err := parse(spoilt)
		var corrupt *corruptError
		if !errors.As(err, &corrupt) {
			t.Fatalf("byte %d: error = %v, want a CorruptError", i, err)
		}
		if line := bytes.Count(text[:i], []byte("\n")) + 1; corrupt.Line != line || c.size > i {
			t.Fatalf("byte %d: named line %d and read %d bytes, it is in line %d", i, corrupt.Line, c.size, line)
		}
	}
}

// No line is left that says how much was on disk before the damaged ones: they may have been.
func TestTwoDamagedLinesAtTheEnd(t *testing.T) {
	var corrupt *corruptError
	if _, err := parse(append(sample(t), "spoilt\nspoilt\n"...)); !errors.As(err, &corrupt) || corrupt.Line != 8 {
		t.Errorf("error = %v", err)
	}
}

// Goroutines write three lines before the first fsync, and the power cut leaves the last one or two of them. None of their
// resources was taken. If a later line says that the three were on disk, the disk has lost what was taken.
func TestAPowerCutBetweenLinesOfSeveralGoroutines(t *testing.T) {
	text := sample(t)
	before := int64(len(text))
	want, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	ends := []int64{before}
	for _, name := range []string{"x", "y", "z"} {
		text = add(t, text, before, entry{Op: opIntend, Kind: "tap", Name: name})
		ends = append(ends, int64(len(text)))
	}
	for _, lost := range []int64{ends[1], ends[2]} {
		damaged := slices.Clone(text)
		clear(damaged[before : lost-20])
		got, err := parse(damaged)
		if diff := cmp.Diff(want, got, unexported); err != nil || diff != "" {
			t.Errorf("bytes %d to %d are lost: error %v, (-want +got):\n%s", before, lost-20, err, diff)
		}
		var corrupt *corruptError
		if _, err = parse(append(damaged, "spoilt\n"...)); err != nil {
			t.Errorf("bytes %d to %d are lost, and the last line: %v", before, lost-20, err)
		}
		_, err = parse(add(t, damaged, ends[3], entry{Op: opDone, Kind: "tap", Name: "z"}))
		if !errors.As(err, &corrupt) || corrupt.Line != 8 {
			t.Errorf("bytes %d to %d are lost, which were on disk: %v", before, lost-20, err)
		}
	}
}

func TestOpenNamesFileAndLineOfACorruptJournal(t *testing.T) {
	state := t.TempDir()
	if err := durable.MakeDirs(Dir(state, job), 0o711); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(Dir(state, job), fileName)
	text := bytes.Replace(sample(t), []byte(`"x":1`), []byte(`"x":2`), 1)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	want := path + ":3: checksum is wrong"
	if _, err := Open(state, job); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error = %v, want %q in it", err, want)
	}
	got, err := Read(state, job)
	if err == nil || got.Header.Node != "n1" {
		t.Errorf("Read = %+v, %v; want the header and an error", got, err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, text) {
		t.Errorf("a corrupt journal was changed (error %v)", err)
	}
}

func TestAJournalOfAnotherJobIsRefused(t *testing.T) {
	state, other := t.TempDir(), ID{Job: 1}
	if err := durable.MakeDirs(Dir(state, other), 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(Dir(state, other), fileName), sample(t), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(state, other); err == nil || !strings.Contains(err.Error(), "belongs to job 4217.1") {
		t.Errorf("error = %v", err)
	}
}

func TestParseID(t *testing.T) {
	tests := map[string]struct {
		want ID
		ok   bool
	}{
		"4217.0":        {want: ID{4217, 0}, ok: true},
		"0.4294967295":  {want: ID{0, 1<<32 - 1}, ok: true},
		"4294967296.0":  {},
		"4217":          {},
		"4217.":         {},
		".0":            {},
		"+1.0":          {},
		"1.00":          {},
		"1.0.0":         {},
		"1.0/../../etc": {},
		"":              {},
	}
	for text, tt := range tests {
		got, err := ParseID(text)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("ParseID(%q) = %v, %v; want %v, ok %v", text, got, err, tt.want, tt.ok)
		}
	}
}

// If parse accepts a text, it accepts the same text again with the same result, and
// everything that is held can be given back.
func FuzzParse(f *testing.F) {
	text := sample(f)
	f.Add(text)
	f.Add(text[:len(text)/2])
	f.Add([]byte("00000000 {}\n00000000 {}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, _ := parse(data)
		if c.size < 0 || c.size > int64(len(data)) {
			t.Fatalf("size %d of %d bytes", c.size, len(data))
		}
		again, err := parse(data[:c.size])
		if err != nil {
			t.Fatalf("the good part is bad: %v", err)
		}
		if diff := cmp.Diff(c, again, unexported); diff != "" {
			t.Fatalf("the good part reads differently (-first +again):\n%s", diff)
		}
		for _, r := range c.held {
			if c, err = c.apply(entry{Op: opUndone, Kind: r.Kind, Name: r.Name}); err != nil {
				t.Fatal(err)
			}
		}
		if len(c.held) != 0 {
			t.Fatalf("still held: %v", c.held)
		}
	})
}
