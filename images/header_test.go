package images

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
)

// qcow2Header is an image of version 3 with these extensions, the backing file's
// name behind them.
func qcow2Header(backing string, extensions ...string) []byte {
	be := binary.BigEndian
	h := make([]byte, 512)
	copy(h, qcow2Magic)
	be.PutUint32(h[4:], 3)
	be.PutUint32(h[20:], 9)
	be.PutUint64(h[24:], 1<<30)
	be.PutUint32(h[100:], 104)
	end := 104 + copy(h[104:], strings.Join(extensions, "")+strings.Repeat("\x00", 8))
	if backing != "" {
		be.PutUint64(h[8:], uint64(end))
		be.PutUint32(h[16:], uint32(len(backing)))
		copy(h[end:], backing)
	}
	return h
}

func TestReadQCOW2(t *testing.T) {
	change := func(h []byte, offset int, text string) []byte {
		copy(h[offset:], text)
		return h
	}
	const format = "\xe2\x79\x2a\xca\x00\x00\x00\x05qcow2\x00\x00\x00"
	tests := map[string]struct {
		image   []byte
		want    header
		wantErr string
	}{
		"without a backing file":      {image: qcow2Header(""), want: header{QCOW2, 1 << 30, "", ""}},
		"with one":                    {image: qcow2Header("a"), want: header{QCOW2, 1 << 30, "a", ""}},
		"with one and its format":     {image: qcow2Header("a", format), want: header{QCOW2, 1 << 30, "a", "qcow2"}},
		"an unknown extension first":  {image: qcow2Header("a", "abcd\x00\x00\x00\x01x\x00\x00\x00\x00\x00\x00\x00", format), want: header{QCOW2, 1 << 30, "a", "qcow2"}},
		"a data file behind the end":  {image: qcow2Header("", "\x00\x00\x00\x00\x00\x00\x00\x00DATA\x00\x00\x00\x01x"), want: header{QCOW2, 1 << 30, "", ""}},
		"a data file":                 {image: qcow2Header("", format, "DATA\x00\x00\x00\x01x"), wantErr: "keeps its data in another file"},
		"an extension without end":    {image: qcow2Header("a", "abcd\xff\xff\xff\xff"), wantErr: "cut off"},
		"a name outside":              {image: change(qcow2Header("a"), 8, "\x00\x00\x00\x00\x00\x00\x02\x00"), wantErr: "out of place"},
		"a name far outside":          {image: change(qcow2Header("a"), 8, "\xff\xff\xff\xff\xff\xff\xff\xff"), wantErr: "out of place"},
		"a name of no bytes":          {image: change(qcow2Header("a"), 16, "\x00\x00\x00\x00"), wantErr: "out of place"},
		"a name that is too long":     {image: change(qcow2Header("a"), 16, "\x00\x00\x04\x00"), wantErr: "out of place"},
		"a name with a zero byte":     {image: qcow2Header("a\x00b"), wantErr: "has a zero byte"},
		"clusters that are too large": {image: change(qcow2Header(""), 20, "\x00\x00\x00\x16"), wantErr: "clusters of 2^22"},
		"no size":                     {image: change(qcow2Header(""), 24, "\x00\x00\x00\x00\x00\x00\x00\x00"), wantErr: "impossible size of 0"},
		"half a header":               {image: qcow2Header("")[:100], wantErr: "cut off"},
		"a later version":             {image: change(qcow2Header(""), 4, "\x00\x00\x00\x04"), wantErr: notADisk},
		"a boot signature beside it":  {image: change(qcow2Header(""), 510, "\x55\xaa"), want: header{QCOW2, 1 << 30, "", ""}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := readHeader(bytes.NewReader(tt.image), int64(len(tt.image)), "")
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("%+v, error %v; want %q", got, err, tt.wantErr)
				}
			} else if err != nil || got != tt.want {
				t.Errorf("%+v, error %v; want %+v", got, err, tt.want)
			}
		})
	}
}

func TestTheImageAboveNamesTheFormat(t *testing.T) {
	qcow2 := qcow2Header("")
	if got, err := readHeader(bytes.NewReader(qcow2), int64(len(qcow2)), Raw); err != nil || got.format != Raw || got.size != 512 {
		t.Errorf("qcow2 bytes as raw: %+v, %v", got, err)
	}
	if got, err := readHeader(bytes.NewReader(nil), 0, Raw); err != nil || got.size != 0 {
		t.Errorf("an empty raw file: %+v, %v", got, err)
	}
	if _, err := readHeader(strings.NewReader("text"), 4, QCOW2); err == nil || !strings.Contains(err.Error(), "is not qcow2") {
		t.Errorf("text as qcow2: %v", err)
	}
}

// Whatever the file holds, the result is one of two formats, with a size that
// can be reckoned with and a name that can be opened.
func FuzzReadHeader(f *testing.F) {
	f.Add(qcow2Header("a"), "")
	f.Add(qcow2Header("", "DATA\x00\x00\x00\x01x"), "qcow2")
	f.Add([]byte("KDMV"), "raw")
	f.Fuzz(func(t *testing.T, image []byte, format string) {
		h, err := readHeader(bytes.NewReader(image), int64(len(image)), format)
		if err != nil {
			return
		}
		if h.format != Raw && h.format != QCOW2 || h.size < 0 || h.size > maxVirtual {
			t.Errorf("%+v", h)
		}
		if len(h.backing) > maxBackingName || strings.Contains(h.backing, "\x00") || h.format == Raw && h.backing != "" {
			t.Errorf("backing file %q", h.backing)
		}
	})
}
