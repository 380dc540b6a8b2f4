package vmnet

import (
	"errors"
	"net"
	"os"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/netlab"
)

func TestNoTapIsAUsers(t *testing.T) {
	n := newNode(t)
	n.do(func() error { return n.lab.Bridge("br0") })
	connect(t, job1, n)
	n.do(func() error {
		_, err := AddTaps(t.Context(), job2, Tap{MAC: MAC(job2.Job, 0), Bridge: "br0"})
		return errors.Join(err, foreignTap("control", netlab.Nobody))
	})
	for name, want := range map[string]error{
		TapName(job1.Job, 0): unix.EPERM, TapName(job2.Job, 0): unix.EPERM, "control": nil,
	} {
		tap, err := n.lab.OpenTapAsNobody(name)
		if !errors.Is(err, want) {
			t.Errorf("an ordinary user opens %s: error = %v, want %v", name, err, want)
		}
		if tap != nil {
			_ = tap.Close()
		}
	}
}

// foreignTap makes a tap that a user may open.
func foreignTap(name string, uid int) error {
	tap, err := netlab.OpenTap(name)
	if err != nil {
		return err
	}
	defer tap.Close()
	fd := int(tap.Fd())
	return errors.Join(unix.IoctlSetInt(fd, unix.TUNSETOWNER, uid), unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1))
}

// The user who traces their QEMU has the descriptor of its tap.
func TestWhatIsDoneToATapStaysOffTheSitesBridge(t *testing.T) {
	n := newNode(t)
	gateway := net.HardwareAddr{2, 9, 9, 9, 9, 9}
	n.do(func() error { return n.lab.Bridge("br0") })
	n.plug(job1, Tap{MAC: MAC(job1.Job, 0), Bridge: "br0"}).Close()
	n.do(func() error {
		return errors.Join(foreignTap("control", netlab.Nobody), netlab.Enslave("control", "br0"))
	})
	for name, taken := range map[string]bool{TapName(job1.Job, 0): false, "control": true} {
		var tap *os.File
		n.do(func() (err error) {
			tap, err = netlab.OpenTap(name)
			return err
		})
		err := n.lab.AsNobody(func() error {
			return errors.Join(netlab.SetMAC(tap, gateway), unix.IoctlSetInt(int(tap.Fd()), unix.TUNSETPERSIST, 0))
		})
		if err != nil {
			t.Fatal(err)
		}
		n.do(func() error {
			entries, err := netlink.NeighList(0, unix.AF_BRIDGE)
			got := slices.ContainsFunc(entries, func(e netlink.Neigh) bool { return slices.Equal(e.HardwareAddr, gateway) })
			if got != taken {
				t.Errorf("the bridge has taken the gateway's address from %s: %v, want %v", name, got, taken)
			}
			return err
		})
		_ = tap.Close() // closing it deletes it
	}
	n.do(func() error { return Delete(t.Context(), job1) })
	if left := n.devices(t); left != nil {
		t.Errorf("left when the tap had vanished: %v", left)
	}
}

func TestDeleteTakesHalfAWire(t *testing.T) {
	n := newNode(t)
	n.do(func() error { return n.lab.Bridge("br0") })
	for name, half := range map[string]func() error{
		"the tap only": func() error { return foreignTap(TapName(job1.Job, 0), 0) },
		"an unmarked veth": func() error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = wireEnd(job1.Job, 0)
			return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: sitePort(job1.Job, 0)})
		},
		"a wire whose tap is gone": func() error {
			_, err := AddTaps(t.Context(), job1, Tap{MAC: MAC(job1.Job, 0), Bridge: "br0"})
			if err != nil {
				return err
			}
			tap, err := netlink.LinkByName(TapName(job1.Job, 0))
			return errors.Join(err, netlink.LinkDel(tap))
		},
	} {
		n.do(half)
		if len(n.devices(t)) == 0 {
			t.Errorf("%s: it is not seen", name)
		}
		n.do(func() error { return Delete(t.Context(), job1) })
		if left := n.devices(t); left != nil {
			t.Errorf("%s: left %v", name, left)
		}
	}
}
