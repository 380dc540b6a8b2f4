package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/vfpool/place"
)

// A node is what a node has left for VFs. Without PFs it takes no VF.
type node struct {
	name string
	free []place.Free
}

// A cluster is nodes in the order in which VMs try them.
type cluster []node

// newCluster returns ConRDMA's nodes: the manager without a PF, and two nodes with one each,
// of which the host keeps reserve percent.
func newCluster(link config.Rate, reserve uint32) cluster {
	free := place.Free{PF: pf, NUMA: -1, Mbps: uint32(link) * (100 - reserve) / 100, VFs: vfs, MinRate: true, MaxRate: true}
	return cluster{{name: "n0"}, {"n1", []place.Free{free}}, {"n2", []place.Free{free}}}
}

// A wish is a VM that wants one VF.
type wish struct {
	kind    string
	minimum uint32 // Mb/s
	apart   string // the node of its partner, which it does not use; "" for any node
}

// A seat is the node that takes a VM, "" if none does. The refusals are those of the nodes
// that were asked before, each with its reason.
type seat struct {
	wish
	node     string
	refusals []string
}

// seat asks the nodes in turn. The first that has room takes the VM.
func (c cluster) seat(w wish) seat {
	s := seat{wish: w}
	for i := range c {
		if c[i].name == w.apart {
			continue
		}
		err := c[i].take(w)
		if err == nil {
			s.node = c[i].name
			return s
		}
		s.refusals = append(s.refusals, fmt.Sprintf("%s: %s", c[i].name, reasonOf(err)))
	}
	return s
}

// take decides on which of its PFs the node gives the VM a VF, and accounts for it.
func (n *node) take(w wish) error {
	request := place.VFRequest{NUMA: -1, VF: jobspec.VF{MinMbps: w.minimum}}
	chosen, err := place.Place(n.free, []place.VFRequest{request}, false)
	if err != nil {
		return err
	}
	n.free[chosen[0]].Mbps -= w.minimum
	n.free[chosen[0]].VFs--
	return nil
}

func reasonOf(err error) string {
	var full *place.Error
	if errors.As(err, &full) {
		return strings.Join(full.Reasons, ", ")
	}
	return err.Error()
}

// A step is VMs that arrive together.
type step struct {
	title string
	seats []seat
}

// arrive seats the senders, then a partner of each on another node, then two VMs more: one
// with a minimum and one without.
func (c cluster) arrive(e experiment) []step {
	guests, partners := step{title: fmt.Sprintf("the %d senders", len(e.senders))}, step{title: "a partner of each, on another node"}
	for _, s := range e.senders {
		guests.seats = append(guests.seats, c.seat(wish{kind: s.kind, minimum: e.minimum(s)}))
	}
	for _, g := range guests.seats {
		partners.seats = append(partners.seats, c.seat(wish{kind: g.kind, minimum: g.minimum, apart: g.node}))
	}
	five := uint32(e.link) / 20
	return []step{guests, partners,
		{fmt.Sprintf("one more, minimum %d Mb/s", five), []seat{c.seat(wish{kind: "AI", minimum: five})}},
		{"one more without a minimum", []seat{c.seat(wish{kind: "file"})}},
	}
}

// on returns the node that has all VMs of the step, "" if there is no such node.
func (s step) on() string {
	for _, seat := range s.seats {
		if seat.node != s.seats[0].node {
			return ""
		}
	}
	return s.seats[0].node
}

// String tells which node took how many VMs of each kind, and why others were refused.
func (s step) String() string {
	seats := map[string][]seat{}
	var verdicts, texts []string
	for _, seat := range s.seats {
		v := seat.verdict()
		if seats[v] == nil {
			verdicts = append(verdicts, v)
		}
		seats[v] = append(seats[v], seat)
	}
	for _, v := range verdicts {
		texts = append(texts, fmt.Sprintf("%s: %s", v, counts(seats[v])))
	}
	return strings.Join(texts, "; ")
}

func (s seat) verdict() string {
	if s.node != "" {
		return s.node
	}
	return "refused (" + strings.Join(s.refusals, "; ") + ")"
}

// counts returns "4 video, 3 AI".
func counts(seats []seat) string {
	number := map[string]int{}
	var kinds, texts []string
	for _, s := range seats {
		if number[s.kind] == 0 {
			kinds = append(kinds, s.kind)
		}
		number[s.kind]++
	}
	for _, kind := range kinds {
		texts = append(texts, fmt.Sprintf("%d %s", number[kind], kind))
	}
	return strings.Join(texts, ", ")
}
