// Command frames is what a hostile root in a VM runs: it sends frames with
// whatever source it likes, and listens to all that arrive. Every frame carries a
// name, by which the other end knows it.
//
//	frames send NAME udp  SOURCE-MAC TARGET-MAC SENDER-IP
//	frames send NAME vlan SOURCE-MAC TARGET-MAC SENDER-IP
//	frames send NAME arp  SOURCE-MAC TARGET-MAC SENDER-IP SENDER-MAC
//	frames receive LAST
//
// receive prints its own MAC once it listens, and then the names of the frames
// that come from others, until that of the last. CARD=06: in the environment chooses
// the network card by the beginning of its MAC; without, it is the first.
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "frames:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	card, err := firstCard()
	if err != nil {
		return err
	}
	socket, err := listen(card)
	if err != nil {
		return err
	}
	switch {
	case len(args) >= 6 && args[0] == "send":
		frame, err := build(args[1], args[2], args[3:])
		if err != nil {
			return err
		}
		_, err = unix.Write(socket, frame)
		return err
	case len(args) == 2 && args[0] == "receive":
		fmt.Println(card.HardwareAddr)
		return receive(socket, args[1])
	}
	return errors.New("see the comment in the source")
}

// firstCard is the first network card whose MAC begins as wanted.
func firstCard() (net.Interface, error) {
	all, err := net.Interfaces()
	for _, i := range all {
		if len(i.HardwareAddr) == 6 && strings.HasPrefix(i.HardwareAddr.String(), os.Getenv("CARD")) {
			return i, nil
		}
	}
	return net.Interface{}, errors.Join(fmt.Errorf("there is no network card with a MAC %s…", os.Getenv("CARD")), err)
}

// listen opens a socket for whole frames of every protocol, to whomever they are.
func listen(card net.Interface) (int, error) {
	every := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, int(every))
	if err != nil {
		return 0, err
	}
	everybody := unix.PacketMreq{Ifindex: int32(card.Index), Type: unix.PACKET_MR_PROMISC}
	return socket, errors.Join(
		unix.SetsockoptPacketMreq(socket, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &everybody),
		unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: every, Ifindex: card.Index}))
}

var named = regexp.MustCompile(`<frame (\S+)>`)

func receive(socket int, last string) error {
	for frame := make([]byte, 2048); ; {
		n, from, err := unix.Recvfrom(socket, frame, 0)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		name := named.FindSubmatch(frame[:max(n, 0)])
		if name == nil || from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		fmt.Printf("%s\n", name[1])
		if string(name[1]) == last {
			return nil
		}
	}
}

// build makes a frame. Its name stands behind what the protocols read.
func build(name, kind string, from []string) ([]byte, error) {
	source, err1 := net.ParseMAC(from[0])
	target, err2 := net.ParseMAC(from[1])
	sender, err3 := netip.ParseAddr(from[2])
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	frame := append(append([]byte{}, target...), source...)
	mark := fmt.Appendf(nil, "<frame %s>", name)
	switch {
	case kind == "udp":
		frame = append(append(frame, 8, 0), udp(sender, mark)...)
	case kind == "vlan":
		frame = append(append(frame, 0x81, 0, 0, 1, 8, 0), udp(sender, mark)...)
	case kind == "arp" && len(from) == 4:
		mac, err := net.ParseMAC(from[3])
		if err != nil {
			return nil, err
		}
		frame = append(append(frame, 8, 6), append(arpAnswer(mac, sender), mark...)...)
	default:
		return nil, fmt.Errorf("%s is no kind of frame, or an address is missing", kind)
	}
	return append(frame, make([]byte, 60)...), nil // the shortest frame is not shorter
}

// udp is a datagram to everybody, for the port "discard".
func udp(sender netip.Addr, mark []byte) []byte {
	const header, port = 20 + 8, 9
	p := make([]byte, header, header+len(mark))
	p[0], p[8], p[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(p[2:], uint16(header+len(mark)))
	copy(p[12:], sender.AsSlice())
	copy(p[16:], []byte{255, 255, 255, 255})
	binary.BigEndian.PutUint16(p[10:], checksum(p[:20])) // br_netfilter looks at it
	binary.BigEndian.PutUint16(p[20:], port)
	binary.BigEndian.PutUint16(p[22:], port)
	binary.BigEndian.PutUint16(p[24:], uint16(8+len(mark)))
	return append(p, mark...)
}

// checksum is that of an IPv4 header.
func checksum(header []byte) uint16 {
	var sum uint32
	for i := 0; i < len(header); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// arpAnswer says, unasked, that sender is at mac.
func arpAnswer(mac net.HardwareAddr, sender netip.Addr) []byte {
	a := []byte{0, 1, 8, 0, 6, 4, 0, 2}
	a = append(append(a, mac...), sender.AsSlice()...)
	return append(append(a, mac...), sender.AsSlice()...)
}
