package guest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

func message(length uint32, rest int) []byte {
	return append(binary.NativeEndian.AppendUint32(nil, length), make([]byte, rest)...)
}

func TestMessagesThatAreNone(t *testing.T) {
	tests := map[string]struct {
		sent []byte
		want string // "" if it is a message
	}{
		"the shortest":         {message(minMessage, minMessage-4), ""},
		"the longest":          {message(maxMessage, maxMessage-4), ""},
		"nothing":              {nil, "EOF"},
		"half a length":        {[]byte{1, 0}, "unexpected EOF"},
		"no header":            {message(minMessage-1, 100), "a FUSE message of 15 bytes"},
		"none at all":          {message(0, 100), "a FUSE message of 0 bytes"},
		"more than allowed":    {message(maxMessage+1, 100), "a FUSE message of 139265 bytes"},
		"more than there is":   {message(100, 50), "unexpected EOF"},
		"four gigabytes of it": {message(1<<32-1, 0), "a FUSE message of 4294967295 bytes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if fault := recover(); fault != nil {
					t.Error(fault)
				}
			}()
			got, err := readMessage(bytes.NewReader(tt.sent), make([]byte, maxMessage), messageLength)
			switch {
			case tt.want == "" && (err != nil || !bytes.Equal(got, tt.sent)):
				t.Errorf("%d of %d bytes, %v", len(got), len(tt.sent), err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error = %v, want %s", err, tt.want)
			}
		})
	}
}

// The host hears that the guest has no FUSE, so that it can take another way.
func TestMountWithoutFUSE(t *testing.T) {
	v := startVM(t)
	if _, err := v.Mount(t.Context(), Mount{Path: "/data"}); !errors.Is(err, ErrNoFUSE) {
		t.Errorf("error = %v", err)
	}
	if _, err := v.Setup(t.Context(), Setup{}); err != nil {
		t.Errorf("the session has not survived: %v", err)
	}
}
