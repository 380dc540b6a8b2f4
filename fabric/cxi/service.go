package cxi

import (
	"slices"

	"github.com/slurm-v/slurm-v/fabric"
)

// DefaultService is the ID of the service of processes that have none of their own. The
// driver makes it, and it cannot be destroyed.
const DefaultService = 1

// A Service is a service on a card, or one that is to be made there.
type Service struct {
	ID      uint32         `json:"id"` // on its card, from 1; 0 before the service is made
	System  bool           `json:"system"`
	Enabled bool           `json:"enabled"`
	Members []Member       `json:"members"` // at most 2; null: all processes may use it
	VNIs    []fabric.Tag   `json:"vnis"`    // at most 4; null: the service is not restricted to listed VNIs
	Classes []fabric.Class `json:"classes"` // null: all
	Limits  *Limits        `json:"limits"`  // null: none
}

// A Member says whose processes may use a service.
type Member struct {
	Kind MemberKind `json:"kind"`
	ID   uint32     `json:"id"`
}

// MemberKind says of what a [Member] has the number.
type MemberKind string

// The values of MemberKind.
const (
	UID   MemberKind = "uid"
	GID   MemberKind = "gid"
	NetNS MemberKind = "netns" // a network namespace
)

// A Placed service is one on the card of a name, such as "cxi0".
type Placed struct {
	Card string `json:"card"`
	Service
}

// kept reports whether nobody but the system may destroy the service.
func (s Service) kept() bool { return s.System || s.ID == DefaultService }

// same reports whether p and other are the same service of the same card, though maybe
// not at the same time. Numbers of services are used again.
func (p Placed) same(other Placed) bool {
	return p.Card == other.Card && p.ID == other.ID && p.System == other.System &&
		slices.Equal(p.Members, other.Members) && sameVNIs(p.VNIs, other.VNIs)
}

// sameVNIs reports whether a and b are the same set.
func sameVNIs(a, b []fabric.Tag) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
