package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSeats(t *testing.T) {
	tests := map[string]struct {
		reserve  uint32
		before   []wish
		wish     wish
		node     string
		refusals []string
	}{
		"the manager has no PF": {
			wish: wish{minimum: 20}, node: "n1", refusals: []string{"n0: the node has no PF for it"},
		},
		"a partner goes to another node": {
			wish: wish{minimum: 20, apart: "n1"}, node: "n2", refusals: []string{"n0: the node has no PF for it"},
		},
		"the whole link can be promised": {
			before: []wish{{minimum: 80}}, wish: wish{minimum: 20}, node: "n1", refusals: []string{"n0: the node has no PF for it"},
		},
		"but not what the host keeps": {
			reserve: 5, before: []wish{{minimum: 80}}, wish: wish{minimum: 20}, node: "n2",
			refusals: []string{"n0: the node has no PF for it", "n1: soft0 has 15m left"},
		},
		"a VM without a minimum fits beside full minima": {
			before: []wish{{minimum: 100}}, wish: wish{}, node: "n1", refusals: []string{"n0: the node has no PF for it"},
		},
		"all refuse": {
			before: []wish{{minimum: 100}, {minimum: 98}}, wish: wish{minimum: 5},
			refusals: []string{"n0: the node has no PF for it", "n1: soft0 has 0 left", "n2: soft0 has 2m left"},
		},
		"VFs run out, too": {
			before: slices.Repeat([]wish{{}}, 16), wish: wish{}, node: "n2",
			refusals: []string{"n0: the node has no PF for it", "n1: soft0 has no VF left"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(100, tt.reserve)
			for _, w := range tt.before {
				c.seat(w)
			}
			got := c.seat(tt.wish)
			if diff := cmp.Diff(seat{tt.wish, tt.node, tt.refusals}, got, cmp.AllowUnexported(seat{}, wish{})); diff != "" {
				t.Errorf("seats differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestThePlacementIsThePapers(t *testing.T) {
	steps := placed(100, 0)
	if steps[0].on() != "n1" || steps[1].on() != "n2" {
		t.Errorf("senders and partners are not on one node each: %s; %s", steps[0], steps[1])
	}
	if text := steps[2].String(); !strings.HasPrefix(text, "refused (") {
		t.Errorf("a minimum beyond what the nodes have: %s", text)
	}
	if text := steps[3].String(); text != "n1: 1 file" {
		t.Errorf("a VM without a minimum: %s", text)
	}
}
