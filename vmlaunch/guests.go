package vmlaunch

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/internal/vmnet"
)

// owner is the user with whose rights the user's files are opened.
func (n *Node) owner() owner.Owner { return n.plan.Owner.rights() }

// taps are the host's ends of the VMs' NICs.
func (n *Node) taps() ([]vmnet.Tap, error) {
	var taps []vmnet.Tap
	for _, vm := range n.plan.VMs {
		tap, err := n.tap(vm)
		if err != nil {
			return nil, err
		}
		taps = append(taps, tap)
	}
	return taps, nil
}

// tap is the host's end of the VM's NIC.
func (n *Node) tap(vm VMPlan) (vmnet.Tap, error) {
	mac, err := net.ParseMAC(vm.MAC)
	if err != nil {
		return vmnet.Tap{}, err
	}
	t := vmnet.Tap{Index: vm.Index, MAC: mac}
	if n.plan.Network.Type == config.NetworkJob {
		t.Address = vm.Address.Addr()
	} else {
		t.Bridge = n.plan.Network.Bridge
	}
	return t, nil
}

// readUserData reads the user's file for cloud-init, if he has one.
func (n *Node) readUserData(ctx context.Context) (err error) {
	if path := n.plan.Job.Spec.UserData; path != "" {
		n.userData, err = images.ReadUserData(ctx, path, n.owner())
	}
	return err
}

// prepareDisks makes the VM's overlay and its seed disk.
func (n *Node) prepareDisks(ctx context.Context, m *machine, image images.Info) error {
	image, err := n.imageOf(ctx, m, image)
	if err != nil {
		return err
	}
	if err := images.CreateOverlay(ctx, image, m.plan.Overlay, n.plan.Job.Spec.DiskMiB, n.owner()); err != nil {
		return err
	}
	seed := images.Seed{
		InstanceID:  m.plan.Domain,
		Hostname:    m.plan.Name,
		GuestBinary: guestBinary(),
		UserData:    n.userData,
	}
	return images.WriteSeed(m.plan.Seed, seed, n.owner())
}

// guestBinary is the guest agent that VMs get from their nodes.
func guestBinary() string { return filepath.Join(config.Libexec, "slurmv-guest") }

// reach connects to the guest agent when it is there.
func (n *Node) reach(ctx context.Context, m *machine) error {
	conn, err := dialPort(m.plan.Channel)
	if err != nil {
		return err
	}
	session, err := guest.Connect(ctx, conn)
	if err != nil {
		_ = conn.Close()
		return err
	}
	m.setSession(session)
	return nil
}

// meetGuest connects to the guest agent, plugs in what a running kernel is to find,
// tells the agent what its VM is to be and takes its report.
func (n *Node) meetGuest(ctx context.Context, m *machine) error {
	if err := n.reach(ctx, m); err != nil {
		return err
	}
	m.pass("agent")
	clockChecked := n.beginClockCheck(ctx, m)
	if err := n.plugRegions(ctx, m); err != nil {
		return err
	}
	setup := n.setup(m.plan)
	if m.restoring {
		if err := n.renew(ctx, m, &setup); err != nil {
			return err
		}
	}
	report, err := m.session.Setup(ctx, setup)
	if err != nil {
		return fmt.Errorf("set up the guest: %w", err)
	}
	if err := clockChecked(); err != nil {
		return err
	}
	return m.adopt(report)
}

// setup is what a guest has to be told.
func (n *Node) setup(vm VMPlan) guest.Setup {
	o := n.plan.Owner
	s := guest.Setup{
		HostName: vm.Name,
		GrowRoot: true,
		User:     guest.User{Name: o.Name, UID: o.UID, GID: o.GID, Home: o.Home, Shell: o.Shell},
		NICs:     []guest.NIC{{MAC: vm.MAC, MTU: n.mtu, Address: "dhcp"}},
		IVShmem:  n.plan.guestMemory(),
	}
	if vm.Address.IsValid() { // the job's own network: see vmnet.Tap
		s.NICs[0].Address, s.NICs[0].IPv4Only = vm.Address.String(), true
	}
	s.NICs = append(s.NICs, vm.vfNICs()...)
	for _, g := range o.Groups {
		s.User.Groups = append(s.User.Groups, guest.Group{Name: g.Name, GID: g.GID})
	}
	for i, m := range n.plan.Job.Spec.Mounts {
		s.Mounts = append(s.Mounts, guest.Mount{Tag: MountTag(i), Path: m.Guest, ReadOnly: m.ReadOnly})
	}
	return s
}

// adopt keeps what the guest reported: the address that a site's DHCP server has
// given it. An address of ours is what we computed, whatever the guest says.
func (m *machine) adopt(report guest.Report) error {
	m.node.log.Info("guest reported", "vm", m.plan.Name, "report", report)
	if m.plan.Address.IsValid() {
		return nil
	}
	for _, a := range report.Addresses {
		if prefix, err := netip.ParsePrefix(a.CIDR); err == nil && prefix.Addr().Is4() && a.MAC == m.plan.MAC {
			m.mu.Lock()
			m.address = prefix
			m.mu.Unlock()
			return nil
		}
	}
	return fmt.Errorf("the guest got no IPv4 address from the site's DHCP server on network %s", m.node.plan.NetName)
}
