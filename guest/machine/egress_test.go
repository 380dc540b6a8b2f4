package machine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/netlab"
)

// A packet for any other network comes out of the device, and one that is written to it comes
// in. Names are asked for at the gateway.
func TestEgress(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("makes network interfaces: run as root")
	}
	vm, err := netlab.NewNode()
	if err != nil {
		t.Skip(err)
	}
	defer vm.Close()
	m := newDouble(t, map[string]string{}).Machine
	for path, to := range map[string]string{"dev/net/tun": "/dev/net/tun", "etc/resolv.conf": "../run/nowhere"} {
		at := filepath.Join(m.root, path)
		_ = os.MkdirAll(filepath.Dir(at), 0o755)
		if err := os.Symlink(to, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := vm.Do(func() error { return errors.Join(makeNIC(), sendOutAndIn(t.Context(), t, m)) }); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(filepath.Join(m.root, "etc/resolv.conf"))
	if err != nil || !strings.Contains(string(text), "nameserver 169.254.83.1\n") {
		t.Errorf("resolv.conf: %s, %v", text, err)
	}
}

// makeNIC gives the VM its address in the job's network, and a kernel that is strict about where packets come from.
func makeNIC() error {
	if err := os.WriteFile("/proc/sys/net/ipv4/conf/all/rp_filter", []byte("1"), 0); err != nil {
		return err
	}
	nic := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}}
	if err := netlink.LinkAdd(nic); err != nil {
		return err
	}
	address := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(172, 30, 0, 1), Mask: net.CIDRMask(16, 32)}}
	return errors.Join(netlink.AddrAdd(nic, address), netlink.LinkSetUp(nic))
}

func sendOutAndIn(ctx context.Context, t *testing.T, m *Machine) error {
	device, err := m.Egress(ctx)
	if err != nil {
		return err
	}
	link, err := netlink.LinkByName(guest.EgressLink)
	if err != nil {
		return err
	}
	conn, err := net.Dial("udp4", "192.0.2.7:9")
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "out"); err != nil {
		return err
	}
	packet := make([]byte, guest.EgressMTU)
	n, err := device.Read(packet)
	if want := []byte{172, 30, 0, 1, 192, 0, 2, 7}; err != nil || !bytes.Equal(packet[12:20], want) {
		t.Errorf("%x, %v, want a packet from and to %v", packet[:n], err, want)
	}
	if addresses, err := netlink.AddrList(link, netlink.FAMILY_V4); err != nil || len(addresses) > 0 {
		t.Errorf("MPI libraries would connect to %v, %v", addresses, err)
	}
	if answer, err := sendBack(device, packet[:n], conn); err != nil || answer != "out" {
		t.Errorf("the answer is %q, %v", answer, err)
	}
	if route, err := netlink.RouteGet(guest.EgressGateway.AsSlice()); err != nil || route[0].LinkIndex != link.Attrs().Index {
		t.Errorf("the gateway is reached by %v, %v", route, err)
	}
	if link.Attrs().MTU != guest.EgressMTU {
		t.Errorf("MTU %d", link.Attrs().MTU)
	}
	if err := device.Close(); err != nil {
		return err
	}
	if _, err := netlink.LinkByName(guest.EgressLink); err == nil {
		t.Error("the interface is there after the end")
	}
	return nil
}

// sendBack sends a datagram back by swapping its addresses and ports, which changes no checksum, and returns what arrives.
func sendBack(device io.Writer, packet []byte, conn net.Conn) (string, error) {
	swapped := slices.Concat(packet[:12], packet[16:20], packet[12:16], packet[22:24], packet[20:22], packet[24:])
	if _, err := device.Write(swapped); err != nil {
		return "", err
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	answer := make([]byte, 10)
	n, err := conn.Read(answer)
	return string(answer[:n]), err
}
