package vmnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/slurm-v/slurm-v/internal/bridgeport"
	"github.com/slurm-v/slurm-v/journal"
)

// A Tap is the host's end of a VM's network card.
//
// On the job's own network a VM can only send IPv4 and ARP, with its own MAC and Address
// as source. IPv6 is dropped for simplicity: a link-local address would do no harm, but
// all addresses there are IPv4, and rules for IPv6 would have to be checked.
//
// A bridge of the site gets its addresses from the site's DHCP server. There, only the
// MAC is checked (in ARP too), and IPv6 passes. Answers that only servers and routers
// give (DHCP, router advertisements) are dropped. Both networks drop frames with a VLAN
// tag and frames that bridges send each other. The tap is not a port of the site's bridge
// but wired to one (see [bridgeport.Wire]). On the job's own bridge it is a port: a user
// could only disturb their own job there.
type Tap struct {
	Index   int // of the VM on this node
	MAC     net.HardwareAddr
	Address netip.Addr // on the job's own network
	Bridge  string     // of the site; "" for the job's own network
	Queues  int
}

// AddTaps makes the taps of VMs, which only root may open, and returns their MTU. It
// makes the filters before the taps. If it fails, call [Delete].
func AddTaps(ctx context.Context, id journal.ID, taps ...Tap) (mtu int, err error) {
	for some := range slices.Chunk(taps, filtersAtOnce) {
		if mtu, err = addTaps(ctx, id, some); err != nil {
			return 0, err
		}
	}
	return mtu, nil
}

// filtersAtOnce is the number of taps whose filters one transaction makes. The kernel
// takes some 10 ms for a transaction, whatever its size. Its answers, one for each rule,
// must fit into the socket's buffer; those for 16 taps still do.
const filtersAtOnce = 8

func addTaps(ctx context.Context, id journal.ID, taps []Tap) (mtu int, err error) {
	bridges := make([]netlink.Link, len(taps))
	for i, tap := range taps {
		if bridges[i], err = tap.check(ctx, id); err != nil {
			return 0, tap.named(id, err)
		}
	}
	if err := filterTaps(id, taps); err != nil {
		return 0, err
	}
	for i, tap := range taps {
		if mtu, err = tap.add(id, bridges[i]); err != nil {
			return 0, tap.named(id, err)
		}
	}
	return mtu, nil
}

// named adds to an error which tap it is about.
func (t Tap) named(id journal.ID, err error) error {
	return fmt.Errorf("make tap %s: %w", TapName(id.Job, t.Index), err)
}

// check checks that the tap can be made, and returns its bridge.
func (t Tap) check(ctx context.Context, id journal.ID) (netlink.Link, error) {
	if err := errors.Join(ctx.Err(), t.validate()); err != nil {
		return nil, err
	}
	return t.findBridge(id)
}

func (t Tap) add(id journal.ID, bridge netlink.Link) (mtu int, err error) {
	mtu = bridgeport.MTU(bridge)
	port, err := t.makePort(id, mtu)
	if err != nil {
		return 0, err
	}
	return mtu, enslave(port, bridge)
}

// makePort makes the tap and returns the link that goes on the bridge.
func (t Tap) makePort(id journal.ID, mtu int) (netlink.Link, error) {
	name := TapName(id.Job, t.Index)
	if t.Bridge != "" {
		return bridgeport.Wire{
			Tap: name, End: wireEnd(id.Job, t.Index), Port: t.portName(id),
			Alias: alias(id), MAC: t.MAC, MTU: mtu, Queues: t.Queues,
		}.Lay()
	}
	tap, err := bridgeport.MakeTap(name, t.Queues)
	if err != nil {
		return nil, err
	}
	if err := bridgeport.Mark(tap, alias(id)); err != nil {
		return nil, err
	}
	if err := netlink.LinkSetMTU(tap, mtu); err != nil {
		return nil, fmt.Errorf("set MTU %d: %w", mtu, err)
	}
	return tap, nil
}

// portName returns the name of the VM's port on its bridge.
func (t Tap) portName(id journal.ID) string {
	if t.Bridge != "" {
		return sitePort(id.Job, t.Index)
	}
	return TapName(id.Job, t.Index)
}

func (t Tap) validate() error {
	switch {
	case t.Index < 0 || t.Index >= 10000:
		return fmt.Errorf("%d is not a VM of a node", t.Index)
	case len(t.MAC) != 6 || t.MAC[0]&1 != 0:
		return fmt.Errorf("%v is not a station's MAC address", t.MAC)
	case t.Bridge == "" && !t.Address.Is4():
		return errors.New("the VM has no IPv4 address")
	}
	return nil
}

func (t Tap) findBridge(id journal.ID) (netlink.Link, error) {
	name := t.Bridge
	if name == "" {
		name = bridgeName(id.Job)
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("bridge %s: %w", name, err)
	}
	if link.Type() != "bridge" {
		return nil, fmt.Errorf("%s is a %s, not a bridge", name, link.Type())
	}
	return link, nil
}
