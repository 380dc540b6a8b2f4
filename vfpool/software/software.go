// Package software makes virtual functions (VFs) on nodes without an SR-IOV card: the
// site declares a bridge to be a physical function (PF), and a VF is a tap that is wired
// to it ([bridgeport.Wire]).
//
// Attaching a VF makes it, and restoring it removes it. It has the features of a card's
// VF:
//
//   - A MAC address which the guest cannot change. The filter drops frames with another
//     source, in ARP too; frames that the guest tagged with a VLAN; frames that only
//     bridges send each other; and answers that only servers and routers give (DHCP, router
//     advertisements).
//   - Rates of what its VM sends. All VFs of a PF are classes below a class with the PF's
//     rate. What one VF does not use, the others may, in proportion to their minima.
//   - A VLAN. A bridge that filters VLANs is told of it. Otherwise there is a bridge per tag,
//     which an 802.1Q device connects to the declared bridge's uplink. Without 802.1Q in the
//     kernel it stays on this node; [Bridges.PFs] notes that.
//
// The guests' frames come from the taps to their ports. Each port redirects them to one
// device of the PF, an IFB, which has the classes and sends the frames back to their port
// and on to the bridge. The source address of a frame selects its class, so only frames
// with the VM's own source take this path. All others go straight to the bridge, whose
// filter drops them.
//
// Links carry an alias, by which the leftovers of a crash are found. All methods work in
// the network namespace of the calling thread.
package software

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/vfpool/device"
)

// Bridges are the bridges that the configuration declares to be PFs, the software PFs.
type Bridges struct {
	cfg   config.VF
	vlans bool // the site's jobs have VLANs

	mu      sync.Mutex
	applied map[string]device.Settings // by name of the tap
}

// Open returns the PFs that the configuration declares. With vlans, jobs have VLANs, and
// the PFs say what their bridges lack for these.
func Open(cfg config.VF, vlans bool) *Bridges {
	return &Bridges{cfg: cfg, vlans: vlans, applied: map[string]device.Settings{}}
}

// PFs returns the PFs, ordered by name, each with all VFs that it may have: a VF is only
// a name until it is attached.
func (b *Bridges) PFs() ([]device.PF, error) {
	var found []device.PF
	for _, name := range slices.Sorted(maps.Keys(b.cfg.Software)) {
		p := b.pf(name)
		described, err := p.describe()
		if err != nil {
			return nil, fmt.Errorf("software PF %s: %w", name, err)
		}
		if described.Unusable.Seen == "" && b.vlans {
			if described.Notes, err = p.vlanNotes(); err != nil {
				return nil, fmt.Errorf("software PF %s: %w", name, err)
			}
		}
		found = append(found, described)
	}
	return found, nil
}

// State returns what the VF is set to: the zero State unless the VF is attached.
func (b *Bridges) State(ctx context.Context, vf device.VF) (device.State, error) {
	var seen facts
	err := again(ctx, func() (err error) {
		seen, err = read(vf)
		return err
	})
	if err != nil {
		return device.State{}, about("read the state of", vf, err)
	}
	if seen.tap.kind == "" && seen.plug.kind == "" {
		return device.State{}, nil
	}
	return device.State{Settings: b.pf(vf.PF).settings(seen)}, nil
}

// Apply checks that Attach can make the VF, and keeps the settings for it.
func (b *Bridges) Apply(ctx context.Context, vf device.VF, want device.Settings) error {
	err := again(ctx, func() error {
		_, err := b.port(vf, want)
		return err
	})
	if err != nil {
		return about("set", vf, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.applied[tapName(vf.PF, vf.Index)] = want
	return nil
}

// Attach makes the VF with the settings given to Apply, and checks that the kernel has
// them. The tap belongs to root, not to the job's owner: libvirt opens it for the job's
// QEMU. If Attach fails, call Restore. Attach and Restore of VFs of one node must not run
// at the same time: VFs share devices.
func (b *Bridges) Attach(ctx context.Context, vf device.VF, _ owner.IDs) error {
	b.mu.Lock()
	want, ok := b.applied[tapName(vf.PF, vf.Index)]
	b.mu.Unlock()
	if !ok {
		return about("attach", vf, errors.New("its settings were not applied"))
	}
	p, err := b.port(vf, want)
	if err == nil {
		err = p.attach(ctx)
	}
	if err != nil {
		return about("attach", vf, err)
	}
	return nil
}

// Restore removes the VF. If it was the last of its PF, Restore also removes what the
// PF's VFs share. It may be called after any crash, more than once, and for PFs that the
// configuration no longer declares. It ignores the original State: the VF did not exist.
func (b *Bridges) Restore(ctx context.Context, vf device.VF, _ device.State) error {
	if err := restore(ctx, vf); err != nil {
		return about("restore", vf, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.applied, tapName(vf.PF, vf.Index))
	return nil
}

// Remains returns what the VF is set to: nothing unless it is attached.
func (b *Bridges) Remains(ctx context.Context, vf device.VF) (device.Settings, error) {
	state, err := b.State(ctx, vf)
	return state.Settings, err
}

// Reset is Restore for a VF that nobody remembers. While a program has its tap open, the error is
// [unix.EBUSY].
func (b *Bridges) Reset(ctx context.Context, vf device.VF) error {
	open, err := isOpen(tapName(vf.PF, vf.Index))
	if open {
		err = fmt.Errorf("a program has it open: %w", unix.EBUSY)
	}
	if err != nil {
		return about("reset", vf, err)
	}
	return b.Restore(ctx, vf, device.State{})
}

func about(what string, vf device.VF, err error) error {
	return fmt.Errorf("%s VF %d of %s (%s): %w", what, vf.Index, vf.PF, tapName(vf.PF, vf.Index), err)
}

// A pf is a declared PF.
type pf struct {
	config.SoftwarePF
	name    string
	reserve int // percent
}

// pf returns the PF of that name; its fields are empty if the PF is not declared.
func (b *Bridges) pf(name string) pf {
	return pf{SoftwarePF: b.cfg.Software[name], name: name, reserve: b.cfg.Reserve}
}

func (p pf) describe() (device.PF, error) {
	d := device.PF{
		Name: p.name, Kind: device.Software, Driver: "bridge " + p.Bridge, LinkLayer: "ether",
		Speed: uint32(p.Rate), NUMA: p.NUMA, TotalVFs: p.VFs,
		Caps: device.Caps{MAC: true, VLAN: true, SpoofCheck: true, MinRate: true, MaxRate: true},
	}
	for i := range p.VFs {
		d.VFs = append(d.VFs, device.VF{
			PF: p.name, Index: i, Kind: device.Software, NUMA: p.NUMA, Group: -1, Device: tapName(p.name, i),
		})
	}
	bridge, err := p.findBridge()
	var unusable *bridgeError
	switch {
	case errors.As(err, &unusable):
		d.Unusable = device.Reason{Seen: unusable.Error()}
		return d, nil
	case err != nil:
		return d, err
	}
	d.Up = bridge.Attrs().Flags&net.FlagUp != 0
	if !d.Up {
		d.Unusable = device.Reason{Seen: fmt.Sprintf("bridge %s is down; set it up: ip link set %s up", p.Bridge, p.Bridge)}
	}
	return d, nil
}

// A port is one VF with its wanted settings.
type port struct {
	pf   pf
	vf   device.VF
	tap  string
	plug string // on the bridge
	mac  net.HardwareAddr
	want device.Settings
}

// port checks that the VF can have the wanted settings.
func (b *Bridges) port(vf device.VF, want device.Settings) (port, error) {
	p := port{pf: b.pf(vf.PF), vf: vf, tap: tapName(vf.PF, vf.Index), plug: plugName(vf.PF, vf.Index), want: want}
	if _, ok := b.cfg.Software[vf.PF]; !ok {
		return p, fmt.Errorf("no software PF of that name is declared; see [vf.software.%s] in the configuration", vf.PF)
	}
	var err error
	if p.mac, err = net.ParseMAC(want.MAC); err != nil || len(p.mac) != 6 || p.mac[0]&1 != 0 {
		return p, fmt.Errorf("MAC %q is not a station's address", want.MAC)
	}
	if err := p.validate(); err != nil {
		return p, err
	}
	_, err = p.pf.findBridge()
	return p, err
}

func (p port) validate() error {
	rate := uint32(p.pf.Rate)
	switch want := p.want; {
	case p.vf.Index < 0 || p.vf.Index >= p.pf.VFs:
		return fmt.Errorf("it has VFs 0 to %d", p.pf.VFs-1)
	case want.VLAN > 4094:
		return fmt.Errorf("VLAN %d is not a tag from 1 to 4094, or 0 for none", want.VLAN)
	case want.MinRate > rate:
		return fmt.Errorf("the minimum of %d Mb/s is above the PF's %d", want.MinRate, rate)
	case want.MaxRate != 0 && want.MaxRate < want.MinRate:
		return fmt.Errorf("the maximum of %d Mb/s is below the minimum of %d", want.MaxRate, want.MinRate)
	case !want.SpoofCheck:
		return errors.New("the check of source addresses cannot be switched off")
	case want.Trust:
		return errors.New("a software VF cannot be trusted: what its guest may send is fixed")
	case want.Link != "" && want.Link != device.LinkAuto:
		return fmt.Errorf("link state %s cannot be set, only %s", want.Link, device.LinkAuto)
	}
	return nil
}
