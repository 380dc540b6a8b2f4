package cxi

import (
	"encoding/json"
	"fmt"
	"slices"
)

// A Resource is something of which a card has a limited number.
type Resource int

// The resources, in the order in which the driver has them and looks for them
// (enum cxi_rsrc_type of shs-cxi-driver's cxi-abi.h).
const (
	PTE Resource = iota // portal table entries
	TXQ                 // transmit command queues
	TGQ                 // target command queues
	EQ                  // event queues
	CT                  // counters
	LE                  // list entries, of each of the card's four processing engines
	TLE                 // trigger list entries
	AC                  // addressing contexts

	numResources = iota
)

var resourceNames = [numResources]string{"PTEs", "TXQs", "TGQs", "EQs", "CTs", "LEs", "TLEs", "ACs"}

// String returns the name as HPE's programs print it: "TXQs".
func (r Resource) String() string { return resourceNames[r] }

// Amounts has a number for each [Resource].
type Amounts [numResources]uint16

// A Limit is how many of a resource the members of a service can get for sure, and how
// many at most.
type Limit struct {
	Reserved uint16 `json:"reserved"`
	Max      uint16 `json:"max"`
}

// Limits has a limit for each [Resource]. In JSON it is an object with the resources'
// names: {"TXQs": {"reserved": 192, "max": 1024}, …}.
type Limits [numResources]Limit

// MarshalJSON writes the object.
func (l Limits) MarshalJSON() ([]byte, error) {
	named := make(map[string]Limit, numResources)
	for r, limit := range l {
		named[Resource(r).String()] = limit
	}
	return json.Marshal(named)
}

// UnmarshalJSON reads what MarshalJSON writes. A resource that is not named has no limits.
func (l *Limits) UnmarshalJSON(text []byte) error {
	var named map[string]Limit
	if err := json.Unmarshal(text, &named); err != nil {
		return err
	}
	*l = Limits{}
	for name, limit := range named {
		r := slices.Index(resourceNames[:], name)
		if r < 0 {
			return fmt.Errorf("%q is no resource of a Slingshot card", name)
		}
		l[r] = limit
	}
	return nil
}
