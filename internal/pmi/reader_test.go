package pmi

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestReaderCutsMessages(t *testing.T) {
	tests := map[string]struct {
		dialect dialect
		stream  string
		want    []string
		wantErr error
	}{
		"lines": {
			pmi1, "cmd=get_maxes\ncmd=barrier_in\n",
			[]string{"cmd=get_maxes\n", "cmd=barrier_in\n"},
			io.EOF,
		},
		"a spawn request is one message": {
			pmi1, "mcmd=spawn\nnprocs=1\nendcmd\ncmd=finalize\n",
			[]string{"mcmd=spawn\nnprocs=1\nendcmd\n", "cmd=finalize\n"},
			io.EOF,
		},
		"a line cut off":            {pmi1, "cmd=fin", nil, io.ErrUnexpectedEOF},
		"a spawn request cut off":   {pmi1, "mcmd=spawn\nnprocs=1\n", nil, io.ErrUnexpectedEOF},
		"Slurm's padding":           {pmi2, "13    cmd=finalize;", []string{"13    cmd=finalize;"}, io.EOF},
		"MPICH's padding":           {pmi2, "    13cmd=finalize;", []string{"    13cmd=finalize;"}, io.EOF},
		"a newline inside":          {pmi2, "000003a\nb", []string{"000003a\nb"}, io.EOF},
		"a length cut off":          {pmi2, "00", nil, io.ErrUnexpectedEOF},
		"a body cut off":            {pmi2, "000004abc", nil, io.ErrUnexpectedEOF},
		"a body that never comes":   {pmi2, "000004", nil, io.ErrUnexpectedEOF},
		"an empty body is complete": {pmi2, "000000", []string{"000000"}, io.EOF},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			// One byte at a time: a message is whole wherever the reads end.
			r := newReader(iotest.OneByteReader(strings.NewReader(tt.stream)))
			var got []string
			var err error
			for {
				var msg []byte
				if msg, err = r.Next(tt.dialect); err != nil {
					break
				}
				got = append(got, string(msg))
			}
			if !errors.Is(err, tt.wantErr) {
				t.Errorf("error = %v, want %v", err, tt.wantErr)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("messages differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReaderRefuses(t *testing.T) {
	tests := map[string]struct {
		dialect dialect
		stream  io.Reader
		want    string
	}{
		"a line without end":          {pmi1, strings.NewReader(strings.Repeat("x", maxMessage+1)), "more than"},
		"a spawn request with no end": {pmi1, strings.NewReader("mcmd=spawn\n" + strings.Repeat("a=b\n", maxMessage/4)), "more than"},
		"a length that is a word":     {pmi2, strings.NewReader("length"), "not a number"},
		"a negative length":           {pmi2, strings.NewReader("-00001"), "not a number"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := newReader(tt.stream).Next(tt.dialect); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one that says %q", err, tt.want)
			}
		})
	}
}

// The messages of a stream, joined, are a prefix of the stream.
func FuzzReader(f *testing.F) {
	f.Add([]byte("cmd=init pmi_version=2\n13    cmd=finalize;"), true)
	f.Add([]byte("mcmd=spawn\nendcmd\ncmd=finalize\n"), false)
	f.Fuzz(func(t *testing.T, stream []byte, counted bool) {
		d := pmi1
		if counted {
			d = pmi2
		}
		r := newReader(bytes.NewReader(stream))
		var joined []byte
		for {
			msg, err := r.Next(d)
			if err != nil {
				break
			}
			if len(msg) == 0 || len(msg) > maxMessage+6 {
				t.Fatalf("a message of %d bytes", len(msg))
			}
			joined = append(joined, msg...)
		}
		if !bytes.HasPrefix(stream, joined) {
			t.Fatalf("messages %q are not the beginning of %q", joined, stream)
		}
	})
}
