package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/owner"
)

// A lab is a guest, played by another stack, and a site whose every host is this machine.
type lab struct {
	*testing.T
	*stack.Stack

	mu   sync.Mutex
	seen []string // see connected
}

func destinationsOf(t *testing.T, texts ...string) (all destinations) {
	t.Helper()
	for _, text := range texts {
		d, err := config.ParseDestination(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	return all
}

// newLab is a lab in which the name licences.site is 10.9.9.9, and all connections go to the
// given address of this machine.
func newLab(t *testing.T, to net.Addr, allowed ...string) *lab {
	t.Helper()
	return newNarrowLab(t, connections, to, allowed...)
}

// newNarrowLab is a lab with so many connections.
func newNarrowLab(t *testing.T, slots int, to net.Addr, allowed ...string) *lab {
	t.Helper()
	l := &lab{T: t}
	n := newNames()
	n.lookup = func(_ context.Context, _, host string) ([]netip.Addr, error) {
		if host == "licences.site" {
			return []netip.Addr{netip.MustParseAddr("10.9.9.9")}, nil
		}
		return nil, errors.New("no such host")
	}
	w := newWay(n, destinationsOf(t, allowed...))
	w.slots = make(chan struct{}, slots)
	w.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		l.mu.Lock()
		l.seen = append(l.seen, network+" "+address)
		l.mu.Unlock()
		return (&net.Dialer{}).DialContext(ctx, network, to.String())
	}
	near, far := pair(t)
	link := channel.New(queued, guest.EgressMTU, "")
	l.Stack = guestStack(t, link)
	served := make(chan error, 1)
	go func() { served <- w.serve(near) }()
	ctx, cancel := context.WithCancel(t.Context())
	go receive(far, link)
	go send(ctx, link, far)
	t.Cleanup(func() {
		cancel()
		l.Stack.Close()
		far.Close()
		<-served
	})
	return l
}

func guestStack(t *testing.T, link stack.LinkEndpoint) *stack.Stack {
	t.Helper()
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	address := tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: tcpip.AddrFrom4([4]byte{172, 30, 0, 1}).WithPrefix()}
	for _, err := range []tcpip.Error{s.CreateNIC(nic, link), s.AddProtocolAddress(nic, address, stack.AddressProperties{})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	return s
}

func fullAddress(text string) tcpip.FullAddress {
	to := netip.MustParseAddrPort(text)
	return tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFrom4(to.Addr().As4()), Port: to.Port()}
}

// pair is a connection whose both ends do not block.
func pair(t *testing.T) (near, far *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fds[0]), "server"), os.NewFile(uintptr(fds[1]), "VM")
}

// connected returns where the node has connected to.
func (l *lab) connected() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.seen)
}

// tcp connects as a program in the guest does.
func (l *lab) tcp(to string) (*gonet.TCPConn, error) {
	ctx, cancel := context.WithTimeout(l.Context(), 10*time.Second)
	defer cancel()
	return gonet.DialContextTCP(ctx, l.Stack, fullAddress(to), ipv4.ProtocolNumber)
}

// echo is a server that sends back what it has heard to the end.
func echo(t *testing.T) net.Addr {
	t.Helper()
	server, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				all, _ := io.ReadAll(conn)
				_, _ = conn.Write(all)
			}()
		}
	}()
	return server.Addr()
}

// The way out carries much data, and the end of each direction by itself.
func TestAStreamIsCarried(t *testing.T) {
	l := newLab(t, echo(t), "10.1.0.0/16:80")
	conn, err := l.tcp("10.1.2.3:80")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sent := strings.Repeat("abcdefgh", 1<<17)
	go func() {
		_, _ = io.WriteString(conn, sent)
		_ = conn.CloseWrite()
	}()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != sent {
		t.Errorf("%d of %d bytes came back, %v", len(got), len(sent), err)
	}
	if want := []string{"tcp4 10.1.2.3:80"}; !slices.Equal(l.connected(), want) {
		t.Errorf("the node connected to %v, want %v", l.connected(), want)
	}
}

func TestOnlyWhatTheSiteAllows(t *testing.T) {
	allowed := []string{"10.1.0.0/16:80", "10.2.0.1", "licences.site:27000-27009", "any:443"}
	tests := map[string]struct {
		to string
		ok bool
	}{
		"an address of a network":       {"10.1.255.1:80", true},
		"another port of it":            {"10.1.255.1:81", false},
		"beside the network":            {"10.3.0.1:80", false},
		"all ports of a host":           {"10.2.0.1:65535", true},
		"a host by its name":            {"10.9.9.9:27009", true},
		"another port of the name":      {"10.9.9.9:27010", false},
		"a port of everybody":           {"192.0.2.1:443", true},
		"a program of the node's alone": {"127.0.0.1:443", false},
		"a link's own address":          {"169.254.169.254:443", false},
		"no host":                       {"0.0.0.0:443", false},
		"many hosts":                    {"224.0.0.1:443", false},
	}
	l := newLab(t, echo(t), allowed...)
	w := newWay(newNames(), destinationsOf(t, allowed...))
	w.names.lookup = func(context.Context, string, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("::ffff:10.9.9.9")}, nil
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := w.allowed.allow(t.Context(), netip.MustParseAddrPort(tt.to), w.names); got != tt.ok {
				t.Errorf("%s allowed: %v, want %v", tt.to, got, tt.ok)
			}
			if strings.HasPrefix(tt.to, "10.") { // others the guest's stack does not send
				conn, err := l.tcp(tt.to)
				if err == nil {
					conn.Close()
				}
				if (err == nil) != tt.ok || err != nil && !strings.Contains(err.Error(), "refused") {
					t.Errorf("connect to %s: %v", tt.to, err)
				}
			}
		})
	}
}

// A VM has so many connections at once, and more when one of them has ended.
func TestConnectionsAreBounded(t *testing.T) {
	l := newNarrowLab(t, 1, echo(t), "any")
	first, err := l.tcp("10.1.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	if second, err := l.tcp("10.1.0.1:80"); err == nil {
		second.Close()
		t.Error("there are two connections")
	}
	first.Close()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		third, err := l.tcp("10.1.0.1:80")
		if err == nil {
			third.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func TestDatagramsAndNames(t *testing.T) {
	server, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		buffer := make([]byte, 2000)
		for {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = server.WriteTo([]byte("heard "+string(buffer[:n])), from)
		}
	}()
	l := newLab(t, server.LocalAddr(), "10.1.0.0/16:123")
	ask := func(to, text string, patience time.Duration) string {
		address := fullAddress(to)
		conn, err := gonet.DialUDP(l.Stack, nil, &address, ipv4.ProtocolNumber)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, text)
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		answer := make([]byte, 2000)
		n, _ := conn.Read(answer)
		return string(answer[:n])
	}
	if got := ask("10.1.0.1:123", "time?", 10*time.Second); got != "heard time?" {
		t.Errorf("allowed: %q", got)
	}
	if got := ask("10.1.0.1:124", "time?", 300*time.Millisecond); got != "" || len(l.connected()) != 1 {
		t.Errorf("not allowed: %q, and the node connected to %v", got, l.connected())
	}

	resolver := net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		gateway := fullAddress(netip.AddrPortFrom(guest.EgressGateway, 53).String())
		return gonet.DialUDP(l.Stack, nil, &gateway, ipv4.ProtocolNumber)
	}}
	if addrs, err := resolver.LookupHost(t.Context(), "licences.site."); err != nil || !slices.Equal(addrs, []string{"10.9.9.9"}) {
		t.Errorf("licences.site: %v, %v", addrs, err)
	}
	var noHost *net.DNSError
	if addrs, err := resolver.LookupHost(t.Context(), "nowhere.site."); !errors.As(err, &noHost) || !noHost.IsNotFound {
		t.Errorf("nowhere.site: %v, %v", addrs, err)
	}
}

// A guest may send anything. The server neither ends nor answers.
func TestPacketsThatAreNone(t *testing.T) {
	near, far := pair(t)
	served := make(chan error, 1)
	go func() { served <- newWay(newNames(), destinationsOf(t, "any")).serve(near) }()
	tcpHeader := append([]byte{0x45, 0, 0, 24, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}, 1, 2, 3, 4)
	echoRequest := append([]byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}, 8, 0, 0xf7, 0xff, 0, 0, 0, 0)
	for _, packet := range [][]byte{{0}, {0x45}, make([]byte, 20), tcpHeader, echoRequest, {0x4f, 0, 0, 20, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}} {
		if _, err := far.Write(packet); err != nil {
			t.Fatalf("%x: %v", packet, err)
		}
	}
	far.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// The server's process is the owner's, and ends with the agent.
func TestTheServerIsTheOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("becomes another user: run as root")
	}
	s, err := Start(t.Context(), owner.Owner{Name: "alice", UID: 65533, GID: 65533}, "1", []string{"any"})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(fmt.Sprintf("/proc/%d", s.process.Process.Pid)); err != nil || info.Sys().(*syscall.Stat_t).Uid != 65533 {
		t.Errorf("the process is not the owner's: %v, %v", info, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the server lives: %d, %v", n, err)
	}
}

func TestWhyTheServerDoesNotStartIsTold(t *testing.T) {
	s, err := Start(t.Context(), owner.Nobody, "1", []string{"any:no-port"})
	if err == nil {
		_ = s.Close()
	}
	if want := "give the VMs a way out of their network: no-port is not a port"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error = %v, want %s …", err, want)
	}
}
