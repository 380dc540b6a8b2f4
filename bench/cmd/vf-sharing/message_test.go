package main

import (
	"net"
	"net/netip"
	"testing"

	"github.com/slurm-v/slurm-v/internal/netlab"
)

var (
	alice = &netlab.Guest{MAC: net.HardwareAddr{2, 0, 0, 0, 1, 0}, Addr: netip.MustParseAddr("10.1.1.1")}
	bob   = &netlab.Guest{MAC: net.HardwareAddr{2, 0, 0, 0, 2, 0}, Addr: netip.MustParseAddr("10.1.2.1")}
)

func TestMessagesAreCutAndPutTogether(t *testing.T) {
	tests := map[string]struct {
		bytes  uint32
		frames int
	}{
		"a small one":                {64, 1},
		"one that fills a frame":     {1472, 1},
		"one that is a byte too big": {1473, 2},
		"a large one":                {16384, 12},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			sent, box := message{7, tt.bytes}, inbox{guest: bob}
			frames := sent.frames(flowOf(alice, bob))
			if len(frames) != tt.frames || sent.parts() != tt.frames {
				t.Fatalf("%d frames of %d, want %d", len(frames), sent.parts(), tt.frames)
			}
			for i, f := range frames {
				got, whole := box.take(f)
				if got != sent || whole != (i == len(frames)-1) {
					t.Errorf("frame %d: message %+v, whole: %v", i, got, whole)
				}
			}
		})
	}
}

func TestAnInboxForgetsWhatLacksAFrame(t *testing.T) {
	box, flow := inbox{guest: bob}, flowOf(alice, bob)
	box.take(message{1, 3000}.frames(flow)[0])
	box.take(message{1, 3000}.frames(flow)[1])
	for i, f := range (message{2, 3000}).frames(flow) {
		if _, whole := box.take(f); whole != (i == 2) {
			t.Errorf("frame %d of the next message completes it: %v", i, whole)
		}
	}
}

func TestAnInboxIgnoresOthers(t *testing.T) {
	tests := map[string]struct {
		frame []byte
		whole bool
	}{
		"its own message":     {message{1, 64}.frames(flowOf(alice, bob))[0], true},
		"a message to others": {message{1, 64}.frames(flowOf(bob, alice))[0], false},
		"a broadcast":         {netlab.ARP(alice.MAC, alice.MAC, alice.Addr, bob.Addr), false},
		"a frame cut short":   {bob.MAC, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			box := inbox{guest: bob}
			if _, whole := box.take(tt.frame); whole != tt.whole {
				t.Errorf("whole: %v, want %v", whole, tt.whole)
			}
		})
	}
}
