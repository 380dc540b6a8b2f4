package bridgeport

import (
	"encoding/binary"
	"net"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// A Rule is the expressions of one nftables rule: conditions, then an action.
type Rule = []expr.Any

// Offsets in a frame: bytes from the start of each header.
const (
	etherSource = 6
	etherType   = 12
	arpFormat   = 0 // hardware type, protocol, and the lengths of their addresses
	arpMAC      = 8
	sourcePort  = 0
	icmpType    = 0
)

// The conditions of which all rules about guests are made.
var (
	IsARP  = When(Link(etherType, Uint16(unix.ETH_P_ARP)))
	IsIPv4 = When(Link(etherType, Uint16(unix.ETH_P_IP)))
	IsIPv6 = When(Link(etherType, Uint16(unix.ETH_P_IPV6)))
)

// ARPFrom matches ARP for IPv4 whose sender has this MAC.
func ARPFrom(mac net.HardwareAddr) Rule {
	return All(IsARP, When(Network(arpFormat, []byte{0, 1, 8, 0, 6, 4})), When(Network(arpMAC, mac)))
}

// NotFrom matches frames whose source is another MAC.
func NotFrom(mac net.HardwareAddr) Rule { return Unless(Link(etherSource, mac)) }

// GuestRules accept what a VM with this MAC may send on a bridge with other users: IPv4,
// ARP and IPv6 from its MAC, except the answers that only servers and routers give.
func GuestRules(mac net.HardwareAddr) []Rule {
	const (
		routerAdvertisement = 134
		redirect            = 137
		dhcpServer          = 67
		dhcpv6Server        = 547
	)
	return []Rule{
		All(NotFrom(mac), Drop()),
		All(ARPFrom(mac), Accept()),
		All(IsIPv4, Protocol(unix.IPPROTO_UDP), When(Transport(sourcePort, Uint16(dhcpServer))), Drop()),
		All(IsIPv4, Accept()),
		All(IsIPv6, Protocol(unix.IPPROTO_ICMPV6), When(Transport(icmpType, []byte{routerAdvertisement})), Drop()),
		All(IsIPv6, Protocol(unix.IPPROTO_ICMPV6), When(Transport(icmpType, []byte{redirect})), Drop()),
		All(IsIPv6, Protocol(unix.IPPROTO_UDP), When(Transport(sourcePort, Uint16(dhcpv6Server))), Drop()),
		All(IsIPv6, Accept()),
		Drop(),
	}
}

// VerdictMap returns a map from the port from which a frame came to the verdict.
// [PortKey] makes its keys.
func VerdictMap(table *nftables.Table, name string) *nftables.Set {
	return &nftables.Set{
		Table: table, Name: name, IsMap: true,
		KeyType: nftables.TypeIFName, DataType: nftables.TypeVerdict,
		KeyByteOrder: binaryutil.NativeEndian, // otherwise nft shows the names as ""
	}
}

// PortKey returns the key of an interface in a map.
func PortKey(name string) []byte {
	key := make([]byte, unix.IFNAMSIZ)
	copy(key, name)
	return key
}

// ByPort looks up the verdict for the port from which a frame came.
func ByPort(verdicts *nftables.Set) Rule {
	return Rule{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Lookup{SourceRegister: 1, IsDestRegSet: true, SetName: verdicts.Name, SetID: verdicts.ID},
	}
}

// All joins parts to one rule.
func All(parts ...Rule) Rule { return slices.Concat(parts...) }

// Accept and Drop end a rule.
func Accept() Rule { return Rule{&expr.Verdict{Kind: expr.VerdictAccept}} }
func Drop() Rule   { return Rule{&expr.Verdict{Kind: expr.VerdictDrop}} }

// A Field is some bytes of a header and the value that they are compared with.
type Field struct {
	base   expr.PayloadBase
	offset uint32
	value  []byte
}

// Link is a field of the Ethernet header.
func Link(offset uint32, value []byte) Field {
	return Field{expr.PayloadBaseLLHeader, offset, value}
}

// Network is a field of the header after Ethernet's: that of IP or ARP.
func Network(offset uint32, value []byte) Field {
	return Field{expr.PayloadBaseNetworkHeader, offset, value}
}

// Transport is a field of the header of UDP, TCP or ICMP.
func Transport(offset uint32, value []byte) Field {
	return Field{expr.PayloadBaseTransportHeader, offset, value}
}

// When continues the rule if f has the value, Unless if it has another value.
func When(f Field) Rule   { return f.compare(expr.CmpOpEq) }
func Unless(f Field) Rule { return f.compare(expr.CmpOpNeq) }

func (f Field) compare(op expr.CmpOp) Rule {
	return Rule{
		&expr.Payload{DestRegister: 1, Base: f.base, Offset: f.offset, Len: uint32(len(f.value))},
		&expr.Cmp{Op: op, Register: 1, Data: f.value},
	}
}

// Protocol continues the rule if the packet has this transport protocol.
func Protocol(number byte) Rule {
	return Rule{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{number}},
	}
}

// Uint16 returns a number in the byte order of the wire.
func Uint16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }
