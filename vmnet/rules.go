package vmnet

import (
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// A rule is what one nftables rule looks at, and then does.
type rule = []expr.Any

// Where things are in a frame: bytes from the start of each header.
const (
	etherSource = 6
	etherType   = 12
	arpFormat   = 0 // hardware type, protocol, their lengths
	arpMAC      = 8
	arpAddress  = 14
	ipSource    = 12
	sourcePort  = 0
	destPort    = 2
	icmpType    = 0
	vxlanVNI    = 8 + 4 // behind the UDP header
)

var (
	typeIPv4 = uint16Bytes(unix.ETH_P_IP)
	typeIPv6 = uint16Bytes(unix.ETH_P_IPV6)
	typeARP  = uint16Bytes(unix.ETH_P_ARP)

	arpForIPv4 = []byte{0, 1, 8, 0, 6, 4}
)

// ownRules is what a VM with this MAC and address may send on its job's network.
func ownRules(mac net.HardwareAddr, addr netip.Addr) []rule {
	return []rule{
		all(unless(link(etherSource, mac)), drop()),
		all(when(link(etherType, typeARP)),
			when(network(arpFormat, arpForIPv4)), when(network(arpMAC, mac)), when(network(arpAddress, addr.AsSlice())),
			accept()),
		all(when(link(etherType, typeIPv4)), when(network(ipSource, addr.AsSlice())), accept()),
		all(drop()),
	}
}

// siteRules is what a VM with this MAC may send on a bridge of the site.
func siteRules(mac net.HardwareAddr) []rule {
	const (
		routerAdvertisement = 134
		redirect            = 137
		dhcpServer          = 67
		dhcpv6Server        = 547
	)
	return []rule{
		all(unless(link(etherSource, mac)), drop()),
		all(when(link(etherType, typeARP)), when(network(arpFormat, arpForIPv4)), when(network(arpMAC, mac)), accept()),
		all(when(link(etherType, typeIPv4)), protocol(unix.IPPROTO_UDP), when(transport(sourcePort, uint16Bytes(dhcpServer))), drop()),
		all(when(link(etherType, typeIPv4)), accept()),
		all(when(link(etherType, typeIPv6)), protocol(unix.IPPROTO_ICMPV6), when(transport(icmpType, []byte{routerAdvertisement})), drop()),
		all(when(link(etherType, typeIPv6)), protocol(unix.IPPROTO_ICMPV6), when(transport(icmpType, []byte{redirect})), drop()),
		all(when(link(etherType, typeIPv6)), protocol(unix.IPPROTO_UDP), when(transport(sourcePort, uint16Bytes(dhcpv6Server))), drop()),
		all(when(link(etherType, typeIPv6)), accept()),
		all(drop()),
	}
}

// byPort looks up the verdict for the port that a frame came in by.
func byPort(verdicts *nftables.Set) rule {
	return rule{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Lookup{SourceRegister: 1, IsDestRegSet: true, SetName: verdicts.Name, SetID: verdicts.ID},
	}
}

// notFromPeer drops the job's VXLAN packets from hosts that are not in peers.
func notFromPeer(n Network, peers *nftables.Set) rule {
	vni := VNI(n.ID.Job)
	return all(
		protocol(unix.IPPROTO_UDP), when(transport(destPort, uint16Bytes(n.Port))),
		when(transport(vxlanVNI, []byte{byte(vni >> 16), byte(vni >> 8), byte(vni)})),
		rule{
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: ipSource, Len: 4},
			&expr.Lookup{SourceRegister: 1, SetName: peers.Name, SetID: peers.ID, Invert: true},
		},
		drop())
}

// rootOnly drops what sockets of ordinary users send to port. The kernel's own
// VXLAN packets have no socket with an owner, so they do not match.
func rootOnly(port uint16) rule {
	return all(
		protocol(unix.IPPROTO_UDP), when(transport(destPort, uint16Bytes(port))),
		rule{
			&expr.Meta{Key: expr.MetaKeySKUID, Register: 1},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
		},
		drop())
}

func all(parts ...rule) rule { return slices.Concat(parts...) }

func accept() rule { return rule{&expr.Verdict{Kind: expr.VerdictAccept}} }
func drop() rule   { return rule{&expr.Verdict{Kind: expr.VerdictDrop}} }

// A field is some bytes of a header and the value they are compared with.
type field struct {
	base   expr.PayloadBase
	offset uint32
	value  []byte
}

func link(offset uint32, value []byte) field {
	return field{expr.PayloadBaseLLHeader, offset, value}
}

func network(offset uint32, value []byte) field {
	return field{expr.PayloadBaseNetworkHeader, offset, value}
}

func transport(offset uint32, value []byte) field {
	return field{expr.PayloadBaseTransportHeader, offset, value}
}

// when goes on with the rule if f has the value, unless if it has another.
func when(f field) rule   { return f.compare(expr.CmpOpEq) }
func unless(f field) rule { return f.compare(expr.CmpOpNeq) }

func (f field) compare(op expr.CmpOp) rule {
	return rule{
		&expr.Payload{DestRegister: 1, Base: f.base, Offset: f.offset, Len: uint32(len(f.value))},
		&expr.Cmp{Op: op, Register: 1, Data: f.value},
	}
}

// protocol goes on if the packet's transport protocol is this one.
func protocol(number byte) rule {
	return rule{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{number}},
	}
}
