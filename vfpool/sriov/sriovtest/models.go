package sriovtest

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vfpool/sriov"
)

// A rule is a driver's answer to being told one attribute of a VF. It may change
// what the driver makes of it.
type rule func(n *Node, c Card, vf int, s *device.Settings) error

// A model is a driver of PFs. An attribute without a rule is EOPNOTSUPP, as of a
// driver without that function.
type model struct {
	set      map[sriov.Attribute]rule
	ownMAC   bool  // the VF's driver chooses a MAC where there is none, and the PF shows it
	afterFLR error // what it says for a while after a reset
}

func (c Card) model() string {
	if c.InfiniBand {
		return c.Driver + " infiniband"
	}
	return c.Driver
}

var models = map[string]model{
	"mlx5_core":            ethernet(yes, model{}),
	"mlx5_core infiniband": {set: map[sriov.Attribute]rule{sriov.LinkState: yes, sriov.NodeGUID: guid, sriov.PortGUID: guid}},
	"mlx4_core":            ethernet(noMinimum(unix.EPROTONOSUPPORT, yes), model{}, sriov.Trust),
	"mlx4_core infiniband": {}, // by the files of tables.go
	"ice":                  ethernet(iceRate, model{afterFLR: unix.EBUSY}),
	"bnxt_en":              ethernet(upToSpeed, model{}),
	"i40e":                 ethernet(noMinimum(unix.EINVAL, upToSpeed), model{afterFLR: unix.EAGAIN}),
	"ixgbe":                ethernet(noMinimum(unix.EINVAL, ixgbeRate), model{ownMAC: true}),
	"igb":                  ethernet(noMinimum(unix.EINVAL, whenUp(upToSpeed)), model{ownMAC: true}, sriov.LinkState),
	"cxi_core":             ethernet(nil, model{}, sriov.VLAN, sriov.Rates),
	"netdevsim":            ethernet(sixteenBits, model{}),
	"acme":                 {set: map[sriov.Attribute]rule{sriov.MAC: mac}},
}

// ethernet is m with everything but what the driver is without.
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

// guid is what ib-sriov-cni says of mlx5: it sets all GUIDs but zero.
func guid(_ *Node, c Card, _ int, s *device.Settings) error {
	if s.NodeGUID == zeroGUID || s.PortGUID == zeroGUID {
		return unix.EINVAL
	}
	if c.DropsGUIDs {
		s.NodeGUID, s.PortGUID = zeroGUID, zeroGUID
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

// iceRate is the only one that adds the minima up.
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

// rtnetlink is the [sriov.Links] of a node.
type rtnetlink struct{ *Node }

// Set is what a driver does when told by rtnetlink.
func (n rtnetlink) Set(pf string, index int, a sriov.Attribute, s device.Settings) error {
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
		return unix.EINVAL // rtnetlink itself
	}
	rule := models[c.model()].set[a]
	if c.Switchdev || rule == nil {
		return unix.EOPNOTSUPP
	}
	if err := rule(n.Node, c, index, &s); err != nil {
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
	case sriov.NodeGUID:
		v.Settings.NodeGUID = s.NodeGUID
	case sriov.PortGUID:
		v.Settings.PortGUID = s.PortGUID
	default:
		v.Settings.Link = s.Link
	}
}

// Settings is what rtnetlink says of a VF.
func (n rtnetlink) Settings(pf string, index int) (device.Settings, error) {
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
		return device.Settings{}, unix.EAGAIN // the kernel leaves it out
	}
	if c.HidesGUIDs {
		v.Settings.NodeGUID, v.Settings.PortGUID = "", ""
	}
	return v.Settings, nil
}

// Switchdev is what devlink says of a card.
func (n rtnetlink) Switchdev(pci string) bool {
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
