package machine

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	if err := vm.Do(func() error { return sendOutAndIn(t.Context(), t, m) }); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(filepath.Join(m.root, "etc/resolv.conf"))
	if err != nil || !strings.Contains(string(text), "nameserver 169.254.83.1\n") {
		t.Errorf("resolv.conf: %s, %v", text, err)
	}
}

func sendOutAndIn(ctx context.Context, t *testing.T, m *Machine) error {
	device, err := m.Egress(ctx)
	if err != nil {
		return err
	}
	link, err := netlink.LinkByName(egressLink)
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
	if want := []byte{169, 254, 83, 2, 192, 0, 2, 7}; err != nil || !bytes.Equal(packet[12:20], want) {
		t.Errorf("%x, %v, want a packet from and to %v", packet[:n], err, want)
	}
	if link.Attrs().MTU != guest.EgressMTU {
		t.Errorf("MTU %d", link.Attrs().MTU)
	}
	if err := device.Close(); err != nil {
		return err
	}
	if _, err := netlink.LinkByName(egressLink); err == nil {
		t.Error("the interface is there after the end")
	}
	return nil
}
