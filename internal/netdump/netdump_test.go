package netdump

import (
	"errors"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
)

func TestWhole(t *testing.T) {
	denied := errors.New("denied")
	for name, tt := range map[string]struct {
		interrupted int // how often the list is incomplete
		err         error
		want        []int
		wantErr     error
	}{
		"at once":             {0, nil, []int{1, 2}, nil},
		"after interruptions": {3, nil, []int{1, 2}, nil},
		"never":               {attempts, nil, nil, netlink.ErrDumpInterrupted},
		"another error":       {0, denied, nil, denied},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Whole(func() ([]int, error) {
				if tt.interrupted--; tt.interrupted >= 0 {
					return []int{1}, netlink.ErrDumpInterrupted
				}
				return tt.want, tt.err
			})
			if !slices.Equal(got, tt.want) || !errors.Is(err, tt.wantErr) {
				t.Errorf("%v, %v; want %v, %v", got, err, tt.want, tt.wantErr)
			}
		})
	}
}
