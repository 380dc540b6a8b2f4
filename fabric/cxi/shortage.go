package cxi

import (
	"fmt"
	"strings"
)

// A report is what the driver says when a card has too little for a service.
type report struct {
	available                           Amounts
	noLEPools, noTLEPools, noCounterSet bool
}

// A shortage is a resource of which a job gets less than it was to get.
type shortage struct {
	resource        Resource
	wanted, reserve uint16 // 0 in reserve: nothing is reserved
	pool            bool   // the resource is there, but no pool for it
}

func (s shortage) String() string {
	if s.pool {
		return fmt.Sprintf("0 %v of %d (all pools of %v are taken)", s.resource, s.wanted, s.resource)
	}
	return fmt.Sprintf("%d %v of %d", s.reserve, s.resource, s.wanted)
}

// A narrowing is how a job's wish has become smaller, step by step. Each resource is
// scaled back once, to what the card has, and each kind of pool is done without once.
type narrowing struct {
	limits Limits
	steps  []shortage
}

// narrow takes out of the limits what the report says is missing. It returns false if
// there is nothing left to take out.
func (n *narrowing) narrow(r report) bool {
	step, ok := n.step(r)
	if !ok || n.did(step) {
		return false
	}
	n.steps = append(n.steps, step)
	n.limits[step.resource].Reserved = step.reserve
	if step.resource == TLE {
		n.limits[TLE] = tleLimit(int(step.reserve))
	}
	return true
}

// step returns what is short in the report. The driver looks for one resource after the
// other, and stops at the first that is short: what it says of later ones, which is 0, says
// nothing (reserve_rsrcs in shs-cxi-driver's cass_svc.c). It asks for pools afterwards.
func (n *narrowing) step(r report) (shortage, bool) {
	for i, limit := range n.limits {
		if limit.Reserved > r.available[i] {
			return n.scaled(Resource(i), r.available[i]), true
		}
	}
	switch {
	case r.noLEPools && n.limits[LE].Reserved > 0:
		return shortage{resource: LE, wanted: n.limits[LE].Reserved, pool: true}, true
	case r.noTLEPools && n.limits[TLE].Reserved > 0:
		return shortage{resource: TLE, wanted: n.limits[TLE].Reserved, pool: true}, true
	}
	return shortage{}, false
}

func (n *narrowing) scaled(r Resource, available uint16) shortage {
	s := shortage{resource: r, wanted: n.limits[r].Reserved, reserve: available}
	if r == TLE {
		s.reserve = tleLimit(int(available)).Reserved
	}
	return s
}

// did reports whether the same was tried before: another job has taken what was there.
func (n *narrowing) did(step shortage) bool {
	for _, s := range n.steps {
		if s.resource == step.resource && s.pool == step.pool {
			return true
		}
	}
	return false
}

// text lists what the job does not get: "64 TXQs of 192, 0 ACs of 192".
func (n *narrowing) text() string {
	var texts []string
	for _, s := range n.steps {
		texts = append(texts, s.String())
	}
	return strings.Join(texts, ", ")
}
