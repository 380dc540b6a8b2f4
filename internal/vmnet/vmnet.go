// Package vmnet connects the VMs of one job to each other and to nothing else.
//
// On each of its nodes a job has a bridge ([Create]) with one tap per VM ([AddTaps]). If
// the job has several nodes, each bridge also has a VXLAN device, which sends frames to
// the other nodes once it knows them ([SetPeers]). The VXLAN network id comes from the
// job's number, and so do addresses ([MAC], [Address]): they are known before anything
// runs, and need no lease. The host has no address on the bridge.
//
// A guest is root in its own VM, so the host checks what it sends. An nftables table of
// the job drops every frame whose source is not the VM's own, and every frame for the
// host itself. A second table drops the job's VXLAN packets unless they come from the
// job's nodes. Ordinary users of such a node could still send them through a UDP socket,
// so a table of the node reserves the VXLAN port for root and the kernel.
//
// A VM can also be on a bridge of the site; see [Tap].
//
// All links carry the job's id in their alias. [Delete] removes the links with that
// alias, and may be called at any time and any number of times. Everything happens in the
// network namespace of the calling thread.
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

// A Network is the part of a job's network on one node.
type Network struct {
	ID       journal.ID
	Nodes    int      // of the job; a job with one node has no VXLAN
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

// Create makes the network on this node. Frames from other nodes are dropped until
// [SetPeers] names these nodes. If Create fails, call [Delete].
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
	// Snooping would need a multicast querier, which does not exist here.
	snooping := false
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = bridgeName(n.ID.Job), n.MTU()
	return addLink(n.ID, &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping})
}

func addVXLAN(n Network, bridge netlink.Link) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = VXLAN(n.ID.Job), n.MTU()
	link, err := addLink(n.ID, &netlink.Vxlan{
		LinkAttrs: attrs,
		VxlanId:   int(vniOf(n.ID.Job)),
		SrcAddr:   n.Underlay.Addr.AsSlice(),
		Port:      int(n.Port),
		// The device learns each VM's node from frames, and frames come only from peers.
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

// addLink makes a link and marks it as part of id's network.
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

// SetPeers gives the network the underlay addresses of the job's other nodes. They come
// from these nodes through the user's own processes: an address that cannot be a node's
// is an error, and then nothing is changed.
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

// flood returns the forwarding entry that sends frames for all stations, and for stations
// not seen yet, to peer.
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
