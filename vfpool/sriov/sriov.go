// Package sriov reads, sets and hands over the virtual functions (VFs) of a node's
// SR-IOV network cards.
//
// [Node.PFs] lists the cards' physical functions (PFs) and their VFs. [Node.Apply] tells
// a VF's PF by netlink what the VF's VM may do. [Node.Attach] binds the VF to vfio-pci
// and gives it to the account that runs QEMU. [Node.Restore] brings back what
// [Node.State] had read; it works from wherever the others stopped, and may be repeated.
// No kernel interface tells what a driver can set for a VF, so drivers.go has a table of
// that.
//
// The package never makes VFs, which the administrator does at boot, and it keeps no
// record of which job has a VF. It reaches the machine through the files below a root
// directory and, where files do not suffice, through [Links] and [Host]. The package
// sriovtest has a made-up node that replaces all three.
package sriov

import (
	"context"
	"errors"
	"time"

	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/vfpool/device"
)

// A Node is the machine whose VFs these are. Its methods may be called from
// several goroutines, for different VFs.
type Node struct {
	Host Host

	// Before is called with the name of each step of Apply, Attach and Restore, such as
	// "apply vlan", before the step. Crash tests end the process here.
	Before func(step string)

	// Patience is how long an operation retries while the card is busy.
	Patience time.Duration

	sys   sysfs
	links Links
}

// Open returns the node whose sys/ and dev/ are below root, "/" for this one.
func Open(root string, links Links) *Node {
	return &Node{Host: kernel{}, Before: func(string) {}, Patience: 2 * time.Second, sys: sysfs(root), links: links}
}

// State returns the present state of vf, for [Node.Restore].
func (n *Node) State(ctx context.Context, vf device.VF) (device.State, error) {
	o, err := n.begin("read", vf)
	if err != nil {
		return device.State{}, err
	}
	return binding{o}.state(ctx)
}

// Apply sets vf, through its PF, to want, and checks that the kernel reports these
// settings. It takes the VF from its driver first: nobody may use the VF while it
// changes.
//
// If the driver cannot set a VLAN or a rate that want has, Apply changes nothing and
// returns an [*UnsupportedError]. It omits other settings that the driver does not
// support.
func (n *Node) Apply(ctx context.Context, vf device.VF, want device.Settings) error {
	o, err := n.begin("apply", vf)
	if err != nil {
		return err
	}
	set, bind := settings{o}, binding{o}
	if want.Link == "" {
		want.Link = device.LinkAuto
	}
	if err := set.refuse(want); err != nil {
		return err
	}
	steps := []step{
		{"idle", bind.idle},
		{"link down", set.setting(LinkState, device.Settings{Link: device.LinkDisable})},
		{"driver_override", bind.override(vfioPCI)},
		{"unbind", bind.unbindUnless(vfioPCI)},
		{"reset", bind.reset},
	}
	for _, attribute := range attributes {
		steps = append(steps, step{string(attribute), set.setting(attribute, want)})
	}
	return o.run(ctx, append(steps, step{"read back", set.readBack(want)})...)
}

// Attach binds vf to vfio-pci and makes owner the only account that can open it.
func (n *Node) Attach(ctx context.Context, vf device.VF, owner owner.IDs) error {
	o, err := n.begin("attach", vf)
	if err != nil {
		return err
	}
	bind := binding{o}
	if vf.Unusable.Seen != "" {
		return o.fail("vfio", vf.PCI, errors.New("it cannot be given to a VM"), vf.Unusable.String())
	}
	return o.run(ctx,
		step{"load", bind.load(vfioPCI)},
		step{"driver_override", bind.override(vfioPCI)},
		step{"unbind", bind.unbindUnless(vfioPCI)},
		step{"bind", bind.bind(vfioPCI)},
		step{"idle", bind.idle},
		step{"owner", bind.own(owner, groupMode)},
	)
}

// Restore brings vf to the original state, however far Apply, Attach or an earlier
// Restore got. It kills the owner's programs that have the VF open; QEMU should have
// ended before. While another user's program has it open, Restore only takes the VF from
// its owner, and returns [unix.EBUSY]. If the VF is gone, Restore does nothing.
func (n *Node) Restore(ctx context.Context, vf device.VF, original device.State) error {
	o, err := n.begin("restore", vf)
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	if o.isAlready(ctx, original) {
		return nil
	}
	if err := o.restore(ctx, original); err != nil && !o.gone() {
		return err
	}
	return nil
}

// restore goes on if a setting cannot be restored. But it binds the driver, which would
// put the VF to use, only if all of them are restored.
func (o *operation) restore(ctx context.Context, original device.State) error {
	set, bind := settings{o}, binding{o}
	if err := o.run(ctx, step{"take back", bind.takeBack}, step{"evict", bind.evict}, step{"idle", bind.idle}); err != nil {
		return err
	}
	if err := o.runAll(ctx, o.undo(original)...); err != nil {
		return err
	}
	return o.run(ctx,
		step{"read back", set.readBack(original.Settings)},
		step{"owner", bind.giveBack(original)},
		step{"bind", bind.bindAgain(original.Driver)},
		// This step is the last: isAlready takes it as the sign that all others were
		// done.
		step{"driver_override", bind.override(original.Override)},
	)
}

func (o *operation) undo(original device.State) []step {
	set, bind := settings{o}, binding{o}
	steps := []step{
		{"link down", set.setting(LinkState, device.Settings{Link: device.LinkDisable})},
		{"unbind", bind.unbindUnless(keep(original.Driver))},
	}
	for i := range attributes {
		attribute := attributes[len(attributes)-1-i]
		if attribute != LinkState {
			steps = append(steps, step{string(attribute), set.setting(attribute, original.Settings)})
		}
	}
	return append(steps, step{"reset", bind.reset}, step{string(LinkState), set.setting(LinkState, original.Settings)})
}

// keep returns the driver that may stay bound while the settings are restored. A network
// driver may not: settings that change under it would disturb it.
func keep(original string) string {
	if original == vfioPCI {
		return vfioPCI
	}
	return ""
}

// isAlready reports whether there is nothing to undo. It is false for a VF bound to
// vfio-pci, since a guest may have left something in it.
func (o *operation) isAlready(ctx context.Context, original device.State) bool {
	set, bind := settings{o}, binding{o}
	now, err := bind.state(ctx)
	if err != nil || now.Driver == vfioPCI || now.Override == vfioPCI {
		return false
	}
	same := len(set.differences(original.Settings, now.Settings)) == 0
	return same && now.Driver == original.Driver && now.Override == original.Override
}
