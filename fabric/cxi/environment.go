package cxi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/fabric"
)

// The variables by which MPI libraries and libfabric learn of a job's services. Flux and
// Slurm's switch/hpe_slingshot set the same.
const (
	varVNIs     = "SLINGSHOT_VNIS"
	varCards    = "SLINGSHOT_DEVICES"
	varServices = "SLINGSHOT_SVC_IDS"
	varClasses  = "SLINGSHOT_TCS"
)

// Variables lists them: a job that has no services must not have those of another job.
var Variables = []string{varVNIs, varCards, varServices, varClasses}

// Environment returns the variables, "NAME=value", for a job's programs on this node, from
// the services that the job has here, such as
//
//	SLINGSHOT_VNIS=4034 SLINGSHOT_DEVICES=cxi0,cxi1 SLINGSHOT_SVC_IDS=11,12 SLINGSHOT_TCS=0x0a
//
// For programs in a VM, put the guest's device name in place of each card's. Services that
// the job does not own are passed over. A job without services has no variables.
func Environment(job Job, services []Placed) []string {
	services = oneOnEach(ofJob(services, job))
	if len(services) == 0 {
		return nil
	}
	var vnis, cards, ids []string
	for _, vni := range job.VNIs {
		vnis = append(vnis, fmt.Sprint(vni))
	}
	for _, s := range services {
		cards, ids = append(cards, s.Card), append(ids, fmt.Sprint(s.ID))
	}
	return []string{
		varVNIs + "=" + strings.Join(vnis, ","),
		varCards + "=" + strings.Join(cards, ","),
		varServices + "=" + strings.Join(ids, ","),
		fmt.Sprintf("%s=0x%02x", varClasses, mask(services)),
	}
}

// oneOnEach returns one service of each card, in the cards' order.
func oneOnEach(services []Placed) []Placed {
	services = slices.Clone(services)
	slices.SortStableFunc(services, func(a, b Placed) int { return byNumber(a.Card, b.Card) })
	return slices.CompactFunc(services, func(a, b Placed) bool { return a.Card == b.Card })
}

// mask has the bits of the classes that all the services have.
func mask(services []Placed) (bits uint) {
	for _, class := range fabric.Classes {
		lacks := func(s Placed) bool { return s.Classes != nil && !slices.Contains(s.Classes, class) }
		if !slices.ContainsFunc(services, lacks) {
			bits |= class.Bit()
		}
	}
	return bits
}
