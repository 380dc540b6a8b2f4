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

// A Rule is what one nftables rule looks at, and then does.
type Rule = []expr.Any

// Where things are in a frame: bytes from the start of each header.
const (
	etherSource = 6
	etherType   = 12
	arpFormat   = 0 // hardware type, protocol, their lengths
	arpMAC      = 8
	sourcePort  = 0
	icmpType    = 0
)

// The conditions that all rules about guests are made of.
var (
	IsARP  = When(Link(etherType, Uint16(unix.ETH_P_ARP)))
	IsIPv4 = When(Link(etherType, Uint16(unix.ETH_P_IP)))
	IsIPv6 = When(Link(etherType, Uint16(unix.ETH_P_IPV6)))
)

// ARPFrom goes on with ARP for IPv4 whose sender has this MAC.
func ARPFrom(mac net.HardwareAddr) Rule {
	return All(IsARP, When(Network(arpFormat, []byte{0, 1, 8, 0, 6, 4})), When(Network(arpMAC, mac)))
}

// NotFrom goes on with frames whose source is another MAC.
func NotFrom(mac net.HardwareAddr) Rule { return Unless(Link(etherSource, mac)) }

// GuestRules is what a VM with this MAC may send on a bridge that others are on, too:
// IPv4, ARP and IPv6 from its MAC, but not the answers that only servers and routers
// give.
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

// VerdictMap is a map from the port that a frame came in by to what becomes of it.
// Its keys are made by [PortKey].
func VerdictMap(table *nftables.Table, name string) *nftables.Set {
	return &nftables.Set{
		Table: table, Name: name, IsMap: true,
		KeyType: nftables.TypeIFName, DataType: nftables.TypeVerdict,
		KeyByteOrder: binaryutil.NativeEndian, // else nft shows the names as ""
	}
}

// PortKey is the name of an interface in a map.
func PortKey(name string) []byte {
	key := make([]byte, unix.IFNAMSIZ)
	copy(key, name)
	return key
}

// ByPort looks up the verdict for the port that a frame came in by.
func ByPort(verdicts *nftables.Set) Rule {
	return Rule{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Lookup{SourceRegister: 1, IsDestRegSet: true, SetName: verdicts.Name, SetID: verdicts.ID},
	}
}

// All is one rule of several parts.
func All(parts ...Rule) Rule { return slices.Concat(parts...) }

// Accept and Drop end a rule.
func Accept() Rule { return Rule{&expr.Verdict{Kind: expr.VerdictAccept}} }
func Drop() Rule   { return Rule{&expr.Verdict{Kind: expr.VerdictDrop}} }

// A Field is some bytes of a header and the value they are compared with.
type Field struct {
	base   expr.PayloadBase
	offset uint32
	value  []byte
}

// Link is a field of the Ethernet header.
func Link(offset uint32, value []byte) Field {
	return Field{expr.PayloadBaseLLHeader, offset, value}
}

// Network is a field of the header behind that: IP's or ARP's.
func Network(offset uint32, value []byte) Field {
	return Field{expr.PayloadBaseNetworkHeader, offset, value}
}

// Transport is a field of UDP's, TCP's or ICMP's header.
func Transport(offset uint32, value []byte) Field {
	return Field{expr.PayloadBaseTransportHeader, offset, value}
}

// When goes on with the rule if f has the value, Unless if it has another.
func When(f Field) Rule   { return f.compare(expr.CmpOpEq) }
func Unless(f Field) Rule { return f.compare(expr.CmpOpNeq) }

func (f Field) compare(op expr.CmpOp) Rule {
	return Rule{
		&expr.Payload{DestRegister: 1, Base: f.base, Offset: f.offset, Len: uint32(len(f.value))},
		&expr.Cmp{Op: op, Register: 1, Data: f.value},
	}
}

// Protocol goes on if the packet's transport protocol is this one.
func Protocol(number byte) Rule {
	return Rule{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{number}},
	}
}

// Uint16 is a number as it is on the wire.
func Uint16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }
