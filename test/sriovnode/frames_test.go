//go:build sriov

package sriovnode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/vfpool"
)

// A station stands for a VM: the VF's own driver in a network namespace, and a
// socket for frames of a protocol that nobody else uses.
type station struct {
	name   string
	vlan   uint16
	grant  vfpool.Grant
	there  netns.NsHandle
	link   netlink.Link
	socket int
	heard  []string
}

const protocol = 0x88b5 // for local experiments (IEEE 802)

// newStation gives a VF that a VM has to its own driver, as the VM's kernel would.
func newStation(t *testing.T, name string, vlan uint16, g vfpool.Grant) *station {
	t.Helper()
	device := filepath.Join("/sys/bus/pci/devices", g.VF.PCI)
	write(t, device+"/driver_override", "igbvf")
	write(t, device+"/driver/unbind", g.VF.PCI)
	write(t, "/sys/bus/pci/drivers_probe", g.VF.PCI)
	names, err := filepath.Glob(device + "/net/*")
	if err != nil || len(names) != 1 {
		t.Fatalf("%s: interfaces %v of its driver %s, %v", g.VF.PCI, names, driverOf(g.VF), err)
	}
	link, err := netlink.LinkByName(filepath.Base(names[0]))
	if err != nil {
		t.Fatal(err)
	}
	s := &station{name: name, vlan: vlan, grant: g, link: link}
	s.move(t)
	return s
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0); err != nil {
		t.Fatal(err)
	}
}

// move takes the station into a namespace of its own until the test ends.
func (s *station) move(t *testing.T) {
	t.Helper()
	err := elsewhere(func() (err error) { s.there, err = netns.New(); return err })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.there.Close() })
	if err := errors.Join(netlink.LinkSetNsFd(s.link, int(s.there)), s.inside(s.open)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(s.socket) })
}

// inside does something in the station's namespace.
func (s *station) inside(do func() error) error {
	return elsewhere(func() error { return errors.Join(netns.Set(s.there), do()) })
}

// elsewhere does something that may leave the network namespace, and comes back.
func elsewhere(do func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	if err != nil {
		return err
	}
	defer home.Close()
	return errors.Join(do(), netns.Set(home))
}

// open brings the station up, in the namespace of the thread.
func (s *station) open() (err error) {
	order := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, protocol))
	if s.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, int(order)); err != nil {
		return err
	}
	deadline := time.Now().Add(time.Minute)
	for err = netlink.LinkSetUp(s.link); err == nil; {
		if s.link, err = netlink.LinkByName(s.link.Attrs().Name); err != nil || s.link.Attrs().OperState == netlink.OperUp {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the link of %s stays down", s.name)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.Join(err, unix.Bind(s.socket, &unix.SockaddrLinklayer{Protocol: order, Ifindex: s.link.Attrs().Index}))
}

var everybody = net.HardwareAddr{255, 255, 255, 255, 255, 255}

// send sends a frame to everybody that says text, after a VLAN's tag if that is not 0.
func (s *station) send(t *testing.T, vlan uint16, text string) {
	t.Helper()
	frame := slices.Concat(everybody, s.mac())
	if vlan != 0 {
		frame = binary.BigEndian.AppendUint16(append(frame, 0x81, 0), vlan)
	}
	frame = append(binary.BigEndian.AppendUint16(frame, protocol), text...)
	frame = append(frame, make([]byte, 60)...) // the shortest frame is not shorter
	if _, err := unix.Write(s.socket, frame); err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
}

func (s *station) mac() net.HardwareAddr { return s.link.Attrs().HardwareAddr }

// hear adds to heard what arrives, until it is text.
func (s *station) hear(t *testing.T, text string) {
	t.Helper()
	limit := unix.Timeval{Sec: 20}
	if err := unix.SetsockoptTimeval(s.socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		t.Fatal(err)
	}
	for frame := make([]byte, 2048); !slices.Contains(s.heard, text); {
		n, from, err := unix.Recvfrom(s.socket, frame, 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			t.Fatalf("%s waits for %q, has heard %q: %v", s.name, text, s.heard, err)
		case n > 14 && from.(*unix.SockaddrLinklayer).Pkttype != unix.PACKET_OUTGOING:
			s.heard = append(s.heard, strings.TrimRight(string(frame[14:n]), "\x00"))
		}
	}
}

// Two jobs with a VLAN each and one without have VMs on both cards. Everyone sends
// to everybody, and once more so that the end of the first round is known. Who is
// in a VLAN also tries to get into another by a tag of his own.
func TestVLANsKeepJobsApart(t *testing.T) {
	l := newLab(t)
	l.keeps(t)
	var stations []*station
	for job, vlan := range map[uint32]uint16{7: 100, 8: 200, 9: 0} {
		for i, g := range l.acquire(t, claim(job, vlan, jobspec.VF{PF: "eth0"}, jobspec.VF{PF: "eth0"}, jobspec.VF{PF: "eth1"})) {
			stations = append(stations, newStation(t, fmt.Sprintf("VM %d of job %d on %s", i, job, g.VF.PF), vlan, g))
		}
	}
	for _, s := range stations {
		s.send(t, 0, "frame of "+s.name)
		s.send(t, tagOf(s), "tag of "+s.name)
	}
	for _, s := range stations {
		s.send(t, 0, "end of "+s.name)
	}
	for _, s := range stations {
		for _, other := range stations {
			if other != s && other.vlan == s.vlan {
				s.hear(t, "end of "+other.name)
			}
		}
	}
	for _, s := range stations {
		checkHeard(t, s, stations)
	}
}

// tagOf is that of the VLAN which a station tries to get into.
func tagOf(s *station) uint16 {
	if s.vlan == 0 {
		return 100
	}
	return 300 - s.vlan
}

// checkHeard checks that s has heard all of its own VLAN and nobody else. The
// emulated card returns a frame to its sender, too.
func checkHeard(t *testing.T, s *station, all []*station) {
	t.Helper()
	for _, other := range all {
		heard := slices.Contains(s.heard, "frame of "+other.name)
		if want := other.vlan == s.vlan; other != s && heard != want {
			t.Errorf("%s hears %s: %v, want %v", s.name, other.name, heard, want)
		}
		// Nobody keeps tags from who has no VLAN of his own: such a frame does get there.
		heard = slices.Contains(s.heard, "tag of "+other.name)
		if want := other.vlan == 0 && s.vlan == tagOf(other); other.vlan != s.vlan && heard != want {
			t.Errorf("%s hears %s, which has tagged its frame: %v, want %v", s.name, other.name, heard, want)
		}
	}
}

// The VM's root cannot take another address than that which the job gave it. (That
// forged senders are dropped cannot be tested here: the emulated card does not
// check them, whatever its driver tells it.)
func TestAVMKeepsItsMAC(t *testing.T) {
	l := newLab(t)
	l.keeps(t)
	g := l.acquire(t, claim(7, 100, jobspec.VF{PF: "eth0"}))[0]
	vm := newStation(t, "the VM", 100, g)
	if got := vm.mac().String(); got != g.Settings.MAC {
		t.Errorf("its MAC is %s, want %s", got, g.Settings.MAC)
	}
	take := func(mac net.HardwareAddr) error {
		return vm.inside(func() error { return netlink.LinkSetHardwareAddr(vm.link, mac) })
	}
	if err := take(vm.mac()); err != nil {
		t.Errorf("it cannot even take the one that it has: %v", err)
	}
	if err := take(net.HardwareAddr{6, 0, 0, 0, 0xee, 0xee}); err == nil {
		t.Error("it has taken another")
	}
	if text := fmt.Sprint(told(t, g.VF)); !strings.Contains(text, "address:"+g.Settings.MAC) {
		t.Errorf("the card knows another: %s", text)
	}
}
