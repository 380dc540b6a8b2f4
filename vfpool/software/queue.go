package software

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/bridgeport"
	"github.com/slurm-v/slurm-v/internal/netdump"
)

// What tc would print for a PF soft0 of 100 Mb/s whose VF 0 has a minimum of 60 Mb/s:
//
//	dev svisoft0
//	    qdisc htb 1: root
//	    class htb 1:1 rate 100Mbit ceil 100Mbit
//	    class htb 1:10 parent 1:1 rate 60Mbit ceil 100Mbit
//	    qdisc bfifo parent 1:10
//	    filter parent 1: pref 1 u32 match ether src 02:00:00:04:1e:40 flowid 1:10
//	dev svssoft0-0
//	    qdisc ingress ffff:
//	    filter parent ffff: pref 1 u32 match ether src 02:00:00:04:1e:40
//	        action mirred egress redirect dev svisoft0
//	dev svfsoft0-0, and likewise back
//	    qdisc ingress ffff:
//	    filter parent ffff: pref 1 u32 match u32 0 0 action mirred egress redirect dev svnsoft0-0
//
// u32 and mirred are among the oldest parts of tc: every kernel that has an IFB has them.

var (
	htbRoot = netlink.MakeHandle(1, 0)
	trunk   = netlink.MakeHandle(1, 1)
)

// leaf returns the class of a VF, priority returns that of its filter.
func leaf(index int) uint32     { return netlink.MakeHandle(1, 0x10+uint16(index)) }
func priority(index int) uint16 { return 1 + uint16(index) }

// queue returns how many bytes may wait in a class. If the PF has nothing else to send, they wait for 20 ms.
func (p pf) queue() uint32 {
	return uint32(min(max(p.speed()/50, 4*largestSend), math.MaxInt32))
}

// makeIFB finds or makes the device that shapes what the PF's VFs send.
func (p pf) makeIFB() (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = ifbName(p.name)
	ifb, err := makeLink(&netlink.Ifb{LinkAttrs: attrs}, mark+p.name)
	if err != nil {
		return nil, err
	}
	if err := addQdisc(ifb, netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: ifb.Attrs().Index, Handle: htbRoot, Parent: netlink.HANDLE_ROOT})); err != nil {
		return nil, err
	}
	all := htbClass{rate: p.speed(), ceil: p.speed(), quantum: leastQuantum} // a class without a parent takes no turns
	if err := setClass(ifb, htbRoot, trunk, all); err != nil {
		return nil, err
	}
	return ifb, setUp(ifb)
}

// addQdisc adds a qdisc unless it is there.
func addQdisc(link netlink.Link, qdisc netlink.Qdisc) error {
	return provideQdisc(link, qdisc.Type(), qdisc.Attrs().Parent, func() error { return netlink.QdiscAdd(qdisc) })
}

// addFIFO adds a bfifo of that many bytes to a class, unless one is there. netlink.QdiscAdd cannot say the bytes (struct
// tc_fifo_qopt of linux/pkt_sched.h). The kernel's own choice comes from the link's queue length, which new kernels limit.
func addFIFO(link netlink.Link, class, bytes uint32) error {
	const kind = "bfifo"
	return provideQdisc(link, kind, class, func() error {
		request := nl.NewNetlinkRequest(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
		request.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(link.Attrs().Index), Parent: class})
		request.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(kind)))
		request.AddData(nl.NewRtAttr(nl.TCA_OPTIONS, nl.Uint32Attr(bytes)))
		_, err := request.Execute(unix.NETLINK_ROUTE, 0)
		return err
	})
}

// provideQdisc adds a qdisc unless there is one of its kind.
func provideQdisc(link netlink.Link, kind string, parent uint32, add func() error) error {
	there, err := netdump.Whole(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(link) })
	if err != nil {
		return fmt.Errorf("list qdiscs of %s: %w", link.Attrs().Name, err)
	}
	for _, q := range there {
		if q.Type() == kind && q.Attrs().Parent == parent {
			return nil
		}
	}
	if err := add(); err != nil {
		return fmt.Errorf("add qdisc %s to %s: %w", kind, link.Attrs().Name, bridgeport.Lacking(err, kind))
	}
	return nil
}

func setClass(ifb netlink.Link, parent, handle uint32, s htbClass) error {
	// With a burst of some milliseconds, a timer that fires late costs no bandwidth.
	const burst = 0.004
	bytes := func(rate uint64) uint32 { return uint32(min(float64(rate)*burst, 1<<30)) + leastQuantum }
	class := netlink.NewHtbClass(
		netlink.ClassAttrs{LinkIndex: ifb.Attrs().Index, Parent: parent, Handle: handle},
		netlink.HtbClassAttrs{Rate: 8 * s.rate, Ceil: 8 * s.ceil, Buffer: bytes(s.rate), Cbuffer: bytes(s.ceil), Quantum: s.quantum})
	if err := netlink.ClassReplace(class); err != nil {
		return fmt.Errorf("set class %s of %s to a rate of %d and a ceiling of %d bytes/s: %w",
			netlink.HandleStr(handle), ifb.Attrs().Name, s.rate, s.ceil, bridgeport.Lacking(err, "htb"))
	}
	return nil
}

// addClass makes the VF's class, and a filter that sends the frames with its MAC there.
func (p port) addClass(ifb netlink.Link) error {
	if err := removeFilter(ifb, p.vf.Index); err != nil {
		return err
	}
	class := leaf(p.vf.Index)
	if err := setClass(ifb, trunk, class, p.pf.shape(p.want.MinRate, p.want.MaxRate)); err != nil {
		return err
	}
	if err := addFIFO(ifb, class, p.pf.queue()); err != nil {
		return err
	}
	filter := fromMAC(ifb, htbRoot, p.mac)
	filter.Priority, filter.ClassId = priority(p.vf.Index), class
	return addFilter(ifb, filter)
}

// redirect sends frames from plug that have its VM's source address through ifb.
func (p port) redirect(plug, ifb netlink.Link) error {
	qdisc := &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: plug.Attrs().Index, Handle: bridgeport.Ingress, Parent: netlink.HANDLE_INGRESS,
	}}
	if err := addQdisc(plug, qdisc); err != nil {
		return err
	}
	filter := fromMAC(plug, bridgeport.Ingress, p.mac)
	filter.Priority = 1
	filter.Actions = []netlink.Action{netlink.NewMirredAction(ifb.Attrs().Index)}
	return addFilter(plug, filter)
}

func addFilter(link netlink.Link, filter *netlink.U32) error {
	if err := netlink.FilterAdd(filter); err != nil {
		return fmt.Errorf("add a filter to %s: %w", link.Attrs().Name, bridgeport.Lacking(err, "u32 or mirred"))
	}
	return nil
}

// u32 counts from the network header, where the source address begins eight bytes
// earlier. It compares four bytes at a time.
const (
	sourceHead = -8
	sourceTail = -4
	tailMask   = 0xffff0000
)

func fromMAC(link netlink.Link, parent uint32, mac net.HardwareAddr) *netlink.U32 {
	return &netlink.U32{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: link.Attrs().Index, Parent: parent, Protocol: unix.ETH_P_ALL},
		Sel: &netlink.TcU32Sel{Flags: netlink.TC_U32_TERMINAL, Keys: []netlink.TcU32Key{
			{Off: sourceHead, Mask: 0xffffffff, Val: binary.BigEndian.Uint32(mac)},
			{Off: sourceTail, Mask: tailMask, Val: uint32(binary.BigEndian.Uint16(mac[4:])) << 16},
		}},
	}
}

// macOf is the inverse of fromMAC.
func macOf(filter *netlink.U32) string {
	if filter.Sel == nil || len(filter.Sel.Keys) != 2 {
		return ""
	}
	head, tail := filter.Sel.Keys[0], filter.Sel.Keys[1]
	if head.Off != sourceHead || tail.Off != sourceTail || head.Mask != 0xffffffff || tail.Mask != tailMask {
		return ""
	}
	mac := binary.BigEndian.AppendUint32(nil, head.Val)
	return net.HardwareAddr(binary.BigEndian.AppendUint16(mac, uint16(tail.Val>>16))).String()
}

// filters returns the u32 filters of that priority.
func filters(link netlink.Link, parent uint32, priority uint16) (found []*netlink.U32, err error) {
	list, err := netdump.Whole(func() ([]netlink.Filter, error) { return netlink.FilterList(link, parent) })
	if err != nil {
		return nil, fmt.Errorf("list filters of %s: %w", link.Attrs().Name, err)
	}
	for _, f := range list {
		// A filter without a selector is the table that contains the others.
		if u, ok := f.(*netlink.U32); ok && u.Priority == priority && u.Sel != nil {
			found = append(found, u)
		}
	}
	return found, nil
}

// class returns the htbClass of the VF's class, and whether the class exists.
func class(ifb netlink.Link, index int) (s htbClass, ok bool, err error) {
	classes, err := netdump.Whole(func() ([]netlink.Class, error) { return netlink.ClassList(ifb, 0) })
	if err != nil {
		return s, false, fmt.Errorf("list classes of %s: %w", ifb.Attrs().Name, err)
	}
	for _, c := range classes {
		if htb, isHTB := c.(*netlink.HtbClass); isHTB && htb.Handle == leaf(index) {
			return htbClass{rate: htb.Rate, ceil: htb.Ceil, quantum: htb.Quantum}, true, nil
		}
	}
	return s, false, nil
}

func removeFilter(ifb netlink.Link, index int) error {
	there, err := filters(ifb, htbRoot, priority(index))
	if err != nil || len(there) == 0 {
		return err
	}
	// Without a handle, this deletes all filters of the priority.
	err = netlink.FilterDel(&netlink.U32{FilterAttrs: netlink.FilterAttrs{
		LinkIndex: ifb.Attrs().Index, Parent: htbRoot, Priority: priority(index), Protocol: unix.ETH_P_ALL,
	}})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete filter %d of %s: %w", priority(index), ifb.Attrs().Name, err)
	}
	return nil
}

// removeClass removes the VF's filter and class, if it has them.
func removeClass(pf string, index int) error {
	ifb, err := find(ifbName(pf))
	if err != nil || ifb == nil {
		return err
	}
	if err := removeFilter(ifb, index); err != nil {
		return err
	}
	_, there, err := class(ifb, index)
	if err != nil || !there {
		return err
	}
	err = netlink.ClassDel(&netlink.HtbClass{ClassAttrs: netlink.ClassAttrs{LinkIndex: ifb.Attrs().Index, Parent: trunk, Handle: leaf(index)}})
	if err != nil {
		return fmt.Errorf("delete class %s of %s: %w", netlink.HandleStr(leaf(index)), ifb.Attrs().Name, err)
	}
	return nil
}

// sweepIFB removes the PF's IFB if the PF has no attached VF.
func sweepIFB(pf string) error {
	links, err := netdump.Links()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		if isPlugOf(pf, l.Attrs().Name) {
			return nil
		}
	}
	return remove(ifbName(pf), "ifb")
}
