package guest

import (
	"bytes"
	"strings"
	"testing"
)

func TestPacketsThatAreNone(t *testing.T) {
	tests := map[string]struct {
		sent []byte
		want string // "" if it is a packet
	}{
		"the shortest":    {append([]byte{0x45, 0, 0, 20}, make([]byte, 16)...), ""},
		"no header":       {[]byte{0x45, 0, 0, 19, 0}, "a packet of IPv4 with 19 bytes"},
		"of IPv6":         {append([]byte{0x60, 0, 0, 40}, make([]byte, 36)...), "a packet of IPv6"},
		"longer than all": {append([]byte{0x45, 0, 0xff, 0xff}, make([]byte, 65531)...), "a packet of IPv4 with 65535 bytes"},
		"cut off":         {[]byte{0x45, 0, 0, 40, 0}, "unexpected EOF"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if fault := recover(); fault != nil {
					t.Error(fault)
				}
			}()
			got, err := readMessage(bytes.NewReader(tt.sent), make([]byte, EgressMTU), packetLength)
			switch {
			case tt.want == "" && (err != nil || !bytes.Equal(got, tt.sent)):
				t.Errorf("%d of %d bytes, %v", len(got), len(tt.sent), err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error = %v, want %s", err, tt.want)
			}
		})
	}
}

// A VM without a way out is still good for most programs.
func TestAGuestWithoutAWayOut(t *testing.T) {
	v := startVM(t)
	if _, err := v.Egress(t.Context()); err == nil || !strings.Contains(err.Error(), "no TUN") {
		t.Errorf("error = %v", err)
	}
	if _, err := v.Setup(t.Context(), Setup{}); err != nil {
		t.Errorf("the session has not survived: %v", err)
	}
}
