// Package vmnet connects the VMs of one job to each other, and to nothing else.
//
// On each of its nodes a job has a bridge ([Create]) and on it one tap per VM
// ([AddTaps]). A job of several nodes also has a VXLAN device on each bridge, which
// sends frames to the other nodes once it is told of them ([SetPeers]). The VXLAN
// network id comes from the job's number. Addresses do too ([MAC], [Address]), so
// that they are known before anything runs and no lease is needed. The bridge has
// no address of the host.
//
// A guest is root in its own VM, so what it sends is checked on the host. An
// nftables table of the job drops every frame whose source is not the VM's own,
// and every frame for the host itself. Another one drops VXLAN packets of this
// job that do not come from its nodes. As an ordinary user of such a node could
// still send them through a UDP socket, a table of the node keeps the VXLAN port
// for root and the kernel.
//
// A VM can also be put on a bridge that the site has; see [Tap].
//
// All links carry the job's id in their alias. [Delete] removes what carries it,
// and may be called at any time and any number of times. Everything happens in
// the network namespace of the calling thread.
package vmnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/bridgeport"
	"github.com/slurm-v/slurm-v/journal"
)

const (
	// overhead is what VXLAN adds to a frame on an IPv4 underlay: the inner
	// Ethernet header (14 bytes), VXLAN (8), UDP (8), IPv4 (20).
	overhead = 50

	ethernetMTU = 1500
)

// A Network is what one node has of a job's network.
type Network struct {
	ID       journal.ID
	Nodes    int      // of the job; with one there is no VXLAN
	Underlay Underlay // of this node, see AutoUnderlay; unused if Nodes is 1
	Port     uint16   // of VXLAN, UDP
}

// MTU returns the size of the largest IP packet that fits through the network.
func (n Network) MTU() int {
	if n.Nodes < 2 {
		return ethernetMTU
	}
	return min(n.Underlay.MTU-overhead, bridgeport.MaxMTU)
}

func (n Network) validate() error {
	switch {
	case n.Nodes < 2:
		return nil
	case !n.Underlay.Addr.Is4() || !n.Underlay.Prefix.Contains(n.Underlay.Addr):
		return fmt.Errorf("underlay address %v is not an IPv4 address in %v", n.Underlay.Addr, n.Underlay.Prefix)
	case n.Port == 0:
		return errors.New("VXLAN port is 0")
	case n.MTU() < 576:
		return fmt.Errorf("MTU %d of interface %s is too small", n.Underlay.MTU, n.Underlay.Interface)
	}
	return nil
}

// Create makes the network on this node. Frames from other nodes are dropped
// until [SetPeers] says which these are. If it fails, call [Delete].
func Create(ctx context.Context, n Network) error {
	if err := create(ctx, n); err != nil {
		return fmt.Errorf("create network of job %s: %w", n.ID, err)
	}
	return nil
}

func create(ctx context.Context, n Network) error {
	if err := errors.Join(ctx.Err(), n.validate()); err != nil {
		return err
	}
	if err := filterJob(n); err != nil {
		return err
	}
	bridge, err := addBridge(n)
	if err != nil {
		return err
	}
	if n.Nodes > 1 {
		if err := addVXLAN(n, bridge); err != nil {
			return err
		}
	}
	return up(bridge)
}

func addBridge(n Network) (netlink.Link, error) {
	// Snooping would wait for a multicast querier, and there is none.
	snooping := false
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = Bridge(n.ID.Job), n.MTU()
	return addLink(n.ID, &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping})
}

func addVXLAN(n Network, bridge netlink.Link) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = VXLAN(n.ID.Job), n.MTU()
	link, err := addLink(n.ID, &netlink.Vxlan{
		LinkAttrs: attrs,
		VxlanId:   int(VNI(n.ID.Job)),
		SrcAddr:   n.Underlay.Addr.AsSlice(),
		Port:      int(n.Port),
		// Which node has which VM is seen from the frames; those come from peers only.
		Learning: true,
	})
	if err != nil {
		return err
	}
	if err := enslave(link, bridge); !errors.Is(err, unix.EADDRINUSE) {
		return err
	}
	return portTaken(n.Port)
}

// addLink makes a link that is marked as id's.
func addLink(id journal.ID, link netlink.Link) (netlink.Link, error) {
	name := link.Attrs().Name
	switch err := netlink.LinkAdd(link); {
	case errors.Is(err, unix.EEXIST):
		return nil, fmt.Errorf("make %s %s: the name or the VXLAN network id is taken; what an earlier job left goes with 'slurmv clean'", link.Type(), name)
	case err != nil:
		return nil, fmt.Errorf("make %s %s: %w", link.Type(), name, err)
	}
	return link, bridgeport.Mark(link, alias(id))
}

func enslave(link, bridge netlink.Link) error {
	if err := netlink.LinkSetMaster(link, bridge); err != nil {
		return fmt.Errorf("put %s on bridge %s: %w", link.Attrs().Name, bridge.Attrs().Name, err)
	}
	return up(link)
}

func up(link netlink.Link) error {
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", link.Attrs().Name, err)
	}
	return nil
}

// SetPeers tells the network at which underlay addresses the job's other nodes
// are. The addresses come from those nodes by way of the user's own processes:
// one that cannot be a node's is an error, and then nothing is changed.
func SetPeers(ctx context.Context, n Network, peers []netip.Addr) error {
	if err := setPeers(ctx, n, peers); err != nil {
		return fmt.Errorf("connect network of job %s to its other nodes: %w", n.ID, err)
	}
	return nil
}

func setPeers(ctx context.Context, n Network, peers []netip.Addr) error {
	if err := errors.Join(ctx.Err(), n.validate(), n.checkPeers(peers)); err != nil || len(peers) == 0 {
		return err
	}
	link, err := netlink.LinkByName(VXLAN(n.ID.Job))
	if err != nil {
		return err
	}
	if err := filterPeers(n, peers); err != nil {
		return err
	}
	for _, peer := range peers {
		if err := netlink.NeighAppend(flood(link, peer)); err != nil {
			return fmt.Errorf("send frames of %s to %v: %w", link.Attrs().Name, peer, err)
		}
	}
	return nil
}

func (n Network) checkPeers(peers []netip.Addr) error {
	if len(peers) > n.Nodes-1 {
		return fmt.Errorf("%d peers of a job with %d nodes", len(peers), n.Nodes)
	}
	for _, peer := range peers {
		switch {
		case !n.Underlay.Prefix.Contains(peer):
			return fmt.Errorf("peer %v is not in the underlay %v; if it is a node, set underlay in the configuration", peer, n.Underlay.Prefix)
		case peer == n.Underlay.Addr:
			return fmt.Errorf("peer %v is this node", peer)
		case !isHost(n.Underlay.Prefix, peer):
			return fmt.Errorf("peer %v is the network or broadcast address of %v", peer, n.Underlay.Prefix)
		}
	}
	return nil
}

// flood is the forwarding entry by which frames for everybody, and for stations
// not seen yet, go to peer.
func flood(vxlan netlink.Link, peer netip.Addr) *netlink.Neigh {
	return &netlink.Neigh{
		LinkIndex:    vxlan.Attrs().Index,
		Family:       unix.AF_BRIDGE,
		Flags:        netlink.NTF_SELF,
		State:        netlink.NUD_PERMANENT | netlink.NUD_NOARP,
		HardwareAddr: make([]byte, 6),
		IP:           peer.AsSlice(),
	}
}
