package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/slurm-v/slurm-v/guest"
)

const (
	nic            = 1
	queued         = 512              // packets to the VM that wait
	connections    = 1024             // of a VM at once
	dialPatience   = 30 * time.Second // as long as a server may take to answer
	silentDatagram = 2 * time.Minute  // ends an exchange of datagrams
	silentResolver = 10 * time.Second // ends the questions of a socket
)

// A way is the way out of one VM. Its stack takes every address for its own and so ends all
// connections of the guest.
type way struct {
	names   *names
	allowed destinations
	slots   chan struct{} // has one for each connection that there is
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
}

func newWay(n *names, allowed destinations) *way {
	d := net.Dialer{Timeout: dialPatience}
	return &way{names: n, allowed: allowed, slots: make(chan struct{}, connections), dial: d.DialContext}
}

// serve carries the packets of one VM until conn ends. It closes conn.
func (w *way) serve(conn io.ReadWriteCloser) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	link := channel.New(queued, guest.EgressMTU, "")
	s, err := w.stack(ctx, link)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	go func() {
		send(ctx, link, conn)
		_ = conn.Close()
	}()
	receive(conn, link)
	cancel()
	s.Close()
	_ = conn.Close()
	return nil
}

// stack makes the stack that ends the guest's connections.
func (w *way) stack(ctx context.Context, link stack.LinkEndpoint) (*stack.Stack, error) {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	for _, err := range []tcpip.Error{s.CreateNIC(nic, link), s.SetPromiscuousMode(nic, true), s.SetSpoofing(nic, true)} {
		if err != nil {
			return nil, fmt.Errorf("make a stack: %s", err)
		}
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	forward := tcp.NewForwarder(s, 0, connections, func(r *tcp.ForwarderRequest) { w.stream(ctx, r) })
	s.SetTransportProtocolHandler(tcp.ProtocolNumber, forward.HandlePacket)
	datagrams := udp.NewForwarder(s, func(r *udp.ForwarderRequest) bool { return w.datagrams(ctx, r) })
	s.SetTransportProtocolHandler(udp.ProtocolNumber, datagrams.HandlePacket)
	return s, nil
}

// receive gives the guest's packets to the stack. Others than TCP and UDP are dropped: the
// stack would answer echo requests for every address.
func receive(conn io.Reader, link *channel.Endpoint) {
	packet := make([]byte, guest.EgressMTU)
	for {
		n, err := conn.Read(packet)
		if err != nil || n == 0 {
			return
		}
		if p := header.IPv4(packet[:n]); n < header.IPv4MinimumSize || p.Protocol() != uint8(tcp.ProtocolNumber) && p.Protocol() != uint8(udp.ProtocolNumber) {
			continue
		}
		buffered := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(packet[:n])})
		link.InjectInbound(ipv4.ProtocolNumber, buffered)
		buffered.DecRef()
	}
}

// send gives the stack's packets to the guest.
func send(ctx context.Context, link *channel.Endpoint, conn io.Writer) {
	for {
		p := link.ReadContext(ctx)
		if p == nil {
			return
		}
		view := p.ToView()
		_, err := conn.Write(view.AsSlice())
		view.Release()
		p.DecRef()
		if err != nil {
			return
		}
	}
}

// to is where the guest wants to connect to.
func to(id stack.TransportEndpointID) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4(id.LocalAddress.As4()), id.LocalPort)
}

// take reports whether the VM may have one more connection. Each ends with give.
func (w *way) take() bool {
	select {
	case w.slots <- struct{}{}:
		return true
	default:
		return false
	}
}

func (w *way) give() { <-w.slots }

// connect connects the node with a destination, if that is allowed.
func (w *way) connect(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
	if !w.allowed.allow(ctx, to, w.names) {
		return nil, fmt.Errorf("%v is not allowed", to)
	}
	return w.dial(ctx, network, to.String())
}

// stream carries a TCP connection. What is not allowed, or does not answer, is refused.
func (w *way) stream(ctx context.Context, r *tcp.ForwarderRequest) {
	if !w.take() {
		r.Complete(true)
		return
	}
	defer w.give()
	outside, err := w.connect(ctx, "tcp4", to(r.ID()))
	if err != nil {
		r.Complete(true)
		return
	}
	defer outside.Close()
	var queue waiter.Queue
	ep, failed := r.CreateEndpoint(&queue)
	r.Complete(failed != nil)
	if failed == nil {
		both(ctx, gonet.NewTCPConn(&queue, ep), outside.(halfCloser))
	}
}

// A halfCloser is a connection whose directions end each by itself.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// both copies between two connections until both directions have ended.
func both(ctx context.Context, a, b halfCloser) {
	defer context.AfterFunc(ctx, func() { _, _ = a.Close(), b.Close() })()
	defer a.Close()
	back := make(chan struct{})
	go func() {
		defer close(back)
		copyTo(a, b)
	}()
	copyTo(b, a)
	<-back
}

// copyTo ends both connections if one is broken, and else only its direction.
func copyTo(to, from halfCloser) {
	if _, err := io.Copy(to, from); err != nil {
		_, _ = to.Close(), from.Close()
		return
	}
	_ = to.CloseWrite()
}

// datagrams carries what a socket of the guest exchanges with one destination, or answers
// questions for names. It must not wait. If it returns false, the guest's socket gets an error.
func (w *way) datagrams(ctx context.Context, r *udp.ForwarderRequest) bool {
	if !w.take() {
		return false
	}
	var queue waiter.Queue
	ep, err := r.CreateEndpoint(&queue)
	if err != nil {
		w.give()
		return false
	}
	go func() {
		defer w.give()
		w.serveDatagrams(ctx, gonet.NewUDPConn(&queue, ep), to(r.ID()))
	}()
	return true
}

// serveDatagrams closes inside.
func (w *way) serveDatagrams(ctx context.Context, inside net.Conn, to netip.AddrPort) {
	defer inside.Close()
	defer context.AfterFunc(ctx, func() { _ = inside.Close() })()
	if to == netip.AddrPortFrom(guest.EgressGateway, 53) {
		w.answerNames(ctx, inside)
		return
	}
	outside, err := w.connect(ctx, "udp4", to)
	if err != nil {
		return
	}
	defer outside.Close()
	exchange(inside, outside)
}

// exchange copies datagrams both ways until nobody has sent one for some time.
func exchange(inside, outside net.Conn) {
	back := make(chan struct{})
	go func() {
		defer close(back)
		copyDatagrams(inside, outside)
	}()
	copyDatagrams(outside, inside)
	_ = outside.Close()
	<-back
}

func copyDatagrams(to, from net.Conn) {
	datagram := make([]byte, guest.EgressMTU)
	for {
		later := time.Now().Add(silentDatagram)
		_, _ = from.SetReadDeadline(later), to.SetReadDeadline(later)
		n, err := from.Read(datagram)
		if err != nil {
			return
		}
		_, _ = to.Write(datagram[:n]) // as a network does, it may lose one
	}
}

// answerNames answers the questions of a socket.
func (w *way) answerNames(ctx context.Context, inside net.Conn) {
	query := make([]byte, 1500)
	for {
		_ = inside.SetReadDeadline(time.Now().Add(silentResolver))
		n, err := inside.Read(query)
		if err != nil {
			return
		}
		if reply, err := w.names.reply(ctx, query[:n]); err == nil {
			_, _ = inside.Write(reply)
		}
	}
}
