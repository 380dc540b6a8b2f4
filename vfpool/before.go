//go:build sriov

package vfpool

import (
	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/vfpool/lease"
	"github.com/slurm-v/slurm-v/vfpool/sriov"
)

// OpenBefore is [Open] for tests on real cards of what a crash leaves behind: the pool
// calls before with the name of each step that it is about to take.
func OpenBefore(cfg config.Config, node string, before func(step string)) (*Pool, error) {
	cards := sriov.Open("/", sriov.Netlink())
	cards.Before = before
	p, err := open(cfg, node, cards)
	if err == nil {
		p.step = func(r lease.Lease) { before("record " + string(r.Phase)) }
	}
	return p, err
}
