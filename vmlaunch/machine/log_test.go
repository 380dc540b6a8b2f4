package machine

import (
	"bytes"
	"path/filepath"
	"testing"
)

func TestLogKeepsTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "console")
	l, err := createLog(path)
	if err != nil {
		t.Fatal(err)
	}
	line := bytes.Repeat([]byte("x"), 1023)
	for range 4 * maxLog / 1024 {
		if _, err := l.Write(append(line, '\n')); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Write([]byte("the end\n")); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := ReadLog(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) > 2*maxLog {
		t.Errorf("the log holds %d bytes, more than %d", len(got), 2*maxLog)
	}
	if len(got) < maxLog {
		t.Errorf("the log holds only %d bytes", len(got))
	}
	if !bytes.HasSuffix(got, []byte("the end\n")) {
		t.Errorf("the log ends with %q", got[max(0, len(got)-20):])
	}
}

func TestReadLogOfNothing(t *testing.T) {
	got, err := ReadLog(filepath.Join(t.TempDir(), "console"))
	if err != nil || len(got) != 0 {
		t.Errorf("readLog = %q, %v; want nothing", got, err)
	}
}
