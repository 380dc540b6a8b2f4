package netlab

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Broadcast is everybody's address.
var Broadcast = net.HardwareAddr{255, 255, 255, 255, 255, 255}

// Frame returns an Ethernet frame, padded to the least length.
func Frame(from, to net.HardwareAddr, kind uint16, payload ...[]byte) []byte {
	const least = 60
	frame := slices.Concat(to, from, number(kind), slices.Concat(payload...))
	return append(frame, make([]byte, max(0, least-len(frame)))...)
}

// A Flow is the source and destination of UDP packets.
type Flow struct {
	FromMAC, ToMAC net.HardwareAddr
	From, To       netip.AddrPort
}

// UDP returns a frame with one packet of the flow.
func (f Flow) UDP(data []byte) []byte {
	udp := slices.Concat(number(f.From.Port()), number(f.To.Port()), number(uint16(8+len(data))), []byte{0, 0}, data)
	ip := slices.Concat([]byte{0x45, 0}, number(uint16(20+len(udp))), []byte{0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0},
		f.From.Addr().AsSlice(), f.To.Addr().AsSlice())
	return Frame(f.FromMAC, f.ToMAC, unix.ETH_P_IP, withChecksum(ip), udp)
}

// withChecksum fills in the checksum of an IPv4 header: bridges drop packets with a wrong
// checksum.
func withChecksum(header []byte) []byte {
	var sum uint32
	for i := 0; i < len(header); i += 2 {
		sum += uint32(header[i])<<8 | uint32(header[i+1])
	}
	sum = sum&0xffff + sum>>16
	sum = sum&0xffff + sum>>16
	copy(header[10:], number(^uint16(sum)))
	return header
}

// ARP returns a request of sender for target.
func ARP(fromMAC, senderMAC net.HardwareAddr, sender, target netip.Addr) []byte {
	return Frame(fromMAC, Broadcast, unix.ETH_P_ARP, []byte{0, 1, 8, 0, 6, 4, 0, 1},
		senderMAC, sender.AsSlice(), make([]byte, 6), target.AsSlice())
}

// IPv6 returns a link-local packet for all stations.
func IPv6(fromMAC net.HardwareAddr, next byte, payload ...byte) []byte {
	from, to := netip.MustParseAddr("fe80::1"), netip.MustParseAddr("ff02::1")
	return Frame(fromMAC, net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, unix.ETH_P_IPV6,
		[]byte{0x60, 0, 0, 0}, number(uint16(len(payload))), []byte{next, 255}, from.AsSlice(), to.AsSlice(), payload)
}

func number(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }
