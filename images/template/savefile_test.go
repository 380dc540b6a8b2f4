package template

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"testing"
)

func written(t *testing.T, s SaveFile) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := s.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestSaveFile(t *testing.T) {
	for name, cookie := range map[string]string{"with a cookie": "<cookie/>", "without one": ""} {
		t.Run(name, func(t *testing.T) {
			file := append(written(t, SaveFile{XML: []byte("<domain/>"), Cookie: []byte(cookie)}), "stream"...)
			r := bytes.NewReader(file)
			got, err := ReadSaveFile(r)
			if err != nil {
				t.Fatal(err)
			}
			if string(got.XML) != "<domain/>" || string(got.Cookie) != cookie {
				t.Errorf("read %q and %q", got.XML, got.Cookie)
			}
			rest, _ := io.ReadAll(r)
			if string(rest) != "stream" || string(file[got.Length:]) != "stream" {
				t.Errorf("%q follows, and %q is at %d", rest, file[got.Length:], got.Length)
			}
		})
	}
}

// libvirt leaves room behind the texts, so that they can grow.
func TestSaveFileWithPadding(t *testing.T) {
	file := written(t, SaveFile{XML: []byte("<domain/>\x00\x00\x00"), Cookie: []byte("<cookie/>\x00\x00")})
	got, err := ReadSaveFile(bytes.NewReader(file))
	if err != nil || string(got.XML) != "<domain/>" || string(got.Cookie) != "<cookie/>" {
		t.Errorf("read %q and %q: %v", got.XML, got.Cookie, err)
	}
}

func TestReadSaveFileRefuses(t *testing.T) {
	good := written(t, SaveFile{XML: []byte("<domain/>")})
	set := func(word int, value uint32) []byte {
		bad := bytes.Clone(good)
		binary.NativeEndian.PutUint32(bad[len(saveMagic)+4*word:], value)
		return bad
	}
	tests := map[string]struct {
		file []byte
		want string
	}{
		"an empty file":          {nil, "EOF"},
		"half a header":          {good[:40], "EOF"},
		"half a description":     {good[:len(good)-3], "EOF"},
		"a save that was broken": {append([]byte("LibvirtQemudPart"), good[16:]...), "did not complete"},
		"another version":        {set(0, 3), "format 3"},
		"compression":            {set(3, 1), "compressed"},
		"an endless description": {set(1, 1<<31), "2147483648 bytes"},
		"a cookie outside":       {set(4, 99), "cookie at 99"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := ReadSaveFile(bytes.NewReader(tt.file)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q in it", err, tt.want)
			}
		})
	}
}

// A save file that can be read is written so that it reads the same, and the stream begins
// at the given length.
func FuzzSaveFile(f *testing.F) {
	f.Add([]byte(saveMagic))
	var b bytes.Buffer
	_, _ = SaveFile{XML: []byte("<domain/>"), Cookie: []byte("<cookie/>")}.WriteTo(&b)
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, file []byte) {
		r := bytes.NewReader(file)
		s, err := ReadSaveFile(r)
		if err != nil {
			return
		}
		if int64(len(file)-r.Len()) != s.Length {
			t.Errorf("read %d bytes, and the stream begins at %d", len(file)-r.Len(), s.Length)
		}
		again, err := ReadSaveFile(bytes.NewReader(written(t, s)))
		if err != nil || !bytes.Equal(again.XML, s.XML) || !bytes.Equal(again.Cookie, s.Cookie) {
			t.Errorf("%+v became %+v: %v", s, again, err)
		}
	})
}
