package bridgeport

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// A tap is opened as often as it has queues, and only as what it was made.
func TestQueuesOfATap(t *testing.T) {
	const plain, several = 0, unix.IFF_MULTI_QUEUE
	tests := map[string]struct {
		queues int
		opens  []uint16
		want   error // of the last one
	}{
		"one queue":                        {1, []uint16{plain}, nil},
		"one queue, opened twice":          {1, []uint16{plain, plain}, unix.EBUSY},
		"one queue, opened as of several":  {1, []uint16{several}, unix.EINVAL},
		"of several, opened twice":         {2, []uint16{several, several}, nil},
		"of several, opened as of one":     {2, []uint16{plain}, unix.EINVAL},
		"unsaid, which is one, and opened": {0, []uint16{plain}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := newNode(t).Do(func() error {
				if _, err := MakeTap("tap0", tt.queues); err != nil {
					t.Fatal(err)
				}
				return openQueues(t, "tap0", tt.opens)
			})
			if !errors.Is(err, tt.want) {
				t.Errorf("error = %v, want %v", err, tt.want)
			}
		})
	}
}

// openQueues opens a tap once for each element of flags, until one fails.
func openQueues(t *testing.T, name string, flags []uint16) error {
	t.Helper()
	for _, flag := range flags {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		request, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR | flag)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			return err
		}
	}
	return nil
}
