package sriovtest

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vfpool/sriov"
)

// A rule is a driver's answer to a request to set one attribute of a VF. It may change
// the settings that the driver stores.
type rule func(n *Node, c Card, vf int, s *device.Settings) error

// A model is a driver of PFs. Setting an attribute without a rule fails with EOPNOTSUPP,
// as with a driver that lacks the function.
type model struct {
	set      map[sriov.Attribute]rule
	ownMAC   bool  // the VF's driver chooses a missing MAC, and the PF shows it
	afterFLR error // its answer for a while after a reset
}

func (c Card) model() string {
	if c.InfiniBand {
		return c.Driver + " infiniband"
	}
	return c.Driver
}

var models = map[string]model{
	"mlx5_core":            ethernet(yes, model{}),
	"mlx5_core infiniband": {set: map[sriov.Attribute]rule{sriov.LinkState: yes}},
	"mlx4_core":            ethernet(noMinimum(unix.EPROTONOSUPPORT, yes), model{}, sriov.Trust),
	"mlx4_core infiniband": {},
	"ice":                  ethernet(iceRate, model{afterFLR: unix.EBUSY}),
	"bnxt_en":              ethernet(upToSpeed, model{}),
	"i40e":                 ethernet(noMinimum(unix.EINVAL, upToSpeed), model{afterFLR: unix.EAGAIN}),
	"ixgbe":                ethernet(noMinimum(unix.EINVAL, ixgbeRate), model{ownMAC: true}),
	"igb":                  ethernet(noMinimum(unix.EINVAL, whenUp(upToSpeed)), model{ownMAC: true}, sriov.LinkState),
	"cxi_core":             ethernet(nil, model{}, sriov.VLAN, sriov.Rates),
	"netdevsim":            ethernet(sixteenBits, model{}),
	"acme":                 {set: map[sriov.Attribute]rule{sriov.MAC: mac}},
}

// ethernet returns m with rules for all attributes except the omitted ones.
func ethernet(rate rule, m model, without ...sriov.Attribute) model {
	m.set = map[sriov.Attribute]rule{
		sriov.MAC: mac, sriov.VLAN: yes, sriov.SpoofCheck: yes, sriov.Trust: yes, sriov.LinkState: yes, sriov.Rates: rate,
	}
	for _, attribute := range without {
		delete(m.set, attribute)
	}
	return m
}

func yes(*Node, Card, int, *device.Settings) error { return nil }

func mac(_ *Node, c Card, _ int, s *device.Settings) error {
	if s.MAC == zeroMAC && c.NoZeroMAC {
		return unix.EINVAL
	}
	return nil
}

func noMinimum(errno error, max rule) rule {
	return func(n *Node, c Card, vf int, s *device.Settings) error {
		if s.MinRate != 0 {
			return errno
		}
		return max(n, c, vf, s)
	}
}

func whenUp(r rule) rule {
	return func(n *Node, c Card, vf int, s *device.Settings) error {
		if c.Down {
			return unix.EINVAL
		}
		return r(n, c, vf, s)
	}
}

func upToSpeed(_ *Node, c Card, _ int, s *device.Settings) error {
	if s.MinRate > c.Speed || s.MaxRate > c.Speed {
		return unix.EINVAL
	}
	return nil
}

func ixgbeRate(_ *Node, c Card, _ int, s *device.Settings) error {
	if c.Down || c.Speed != 10000 || s.MaxRate != 0 && (s.MaxRate <= 10 || s.MaxRate > 10000) {
		return unix.EINVAL
	}
	return nil
}

// iceRate models ice, the only driver that adds the minima up.
func iceRate(n *Node, c Card, vf int, s *device.Settings) error {
	if s.MinRate != 0 && c.DCB {
		return unix.EOPNOTSUPP
	}
	sum := s.MinRate
	for i := range c.VFs {
		if v, err := n.load(c.VF(i)); err == nil && i != vf {
			sum += v.Settings.MinRate
		}
	}
	if sum > c.Speed {
		return unix.EINVAL
	}
	return nil
}

func sixteenBits(_ *Node, _ Card, _ int, s *device.Settings) error {
	s.MinRate, s.MaxRate = s.MinRate&0xffff, s.MaxRate&0xffff
	return nil
}

// Set does what a driver does when rtnetlink sets an attribute.
func (n *Node) Set(pf string, index int, a sriov.Attribute, s device.Settings) error {
	if err := n.effect("set " + string(a)); err != nil {
		return err
	}
	c, err := n.find(pf)
	if err != nil {
		return err
	}
	v, err := n.load(c.VF(index))
	if err != nil {
		return unix.EINVAL // the driver has fewer VFs
	}
	if v.Busy > 0 {
		v.Busy--
		return firstError(n.save(c.VF(index), v), models[c.model()].afterFLR)
	}
	if a == sriov.Rates && s.MaxRate != 0 && s.MinRate > s.MaxRate {
		return unix.EINVAL // rtnetlink itself refuses this
	}
	rule := models[c.model()].set[a]
	if c.Switchdev || rule == nil {
		return unix.EOPNOTSUPP
	}
	if err := rule(n, c, index, &s); err != nil {
		return err
	}
	v.take(a, s)
	return n.save(c.VF(index), v)
}

func (v *vf) take(a sriov.Attribute, s device.Settings) {
	switch a {
	case sriov.MAC:
		v.Settings.MAC = s.MAC
	case sriov.VLAN:
		v.Settings.VLAN, v.Settings.QoS = s.VLAN, s.QoS
	case sriov.SpoofCheck:
		v.Settings.SpoofCheck = s.SpoofCheck
	case sriov.Trust:
		v.Settings.Trust = s.Trust
	case sriov.Rates:
		v.Settings.MinRate, v.Settings.MaxRate = s.MinRate, s.MaxRate
	default:
		v.Settings.Link = s.Link
	}
}

// Settings returns what rtnetlink reports of a VF.
func (n *Node) Settings(pf string, index int) (device.Settings, error) {
	if err := n.effect("read"); err != nil {
		return device.Settings{}, err
	}
	c, err := n.find(pf)
	if err == nil && c.Unreadable {
		err = fmt.Errorf("%w: %w", sriov.ErrUnreadable, unix.EMSGSIZE)
	}
	if err != nil {
		return device.Settings{}, err
	}
	v, err := n.load(c.VF(index))
	if err != nil {
		return device.Settings{}, unix.EAGAIN // the kernel omits it from its list
	}
	return v.Settings, nil
}

// Switchdev returns what devlink reports of a card.
func (n *Node) Switchdev(pci string) bool {
	return slices.ContainsFunc(n.cards, func(c Card) bool { return c.PCI == pci && c.Switchdev })
}

var errNoLink = errors.New("no such network interface")

func (n *Node) find(pf string) (Card, error) {
	for _, c := range n.cards {
		if c.Name == pf {
			return c, nil
		}
	}
	return Card{}, fmt.Errorf("%w: %w", unix.ENODEV, errNoLink)
}
