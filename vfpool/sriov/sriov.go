// Package sriov reads, sets and hands over the virtual functions (VFs) of a node's
// SR-IOV network cards.
//
// [Node.PFs] lists the cards' physical functions (PFs) and their VFs. What a VF's
// VM may do is told to the VF's PF by netlink ([Node.Apply]); then the VF is bound
// to vfio-pci and given to the account that runs QEMU ([Node.Attach]).
// [Node.Restore] brings back what [Node.State] had read, from wherever the others
// stopped, and may be repeated. No kernel interface says what a driver lets a PF
// do for its VFs: that is a table, drivers.go.
//
// The package never makes VFs, the administrator does at boot, and it keeps no
// record of whose a VF is. It touches the machine through the files below a root
// directory, and two seams where files are not enough: [Links] and [Host]. The
// package sriovtest has a node of which all three are made up.
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

	// Before is called before every step of Apply, Attach and Restore with its
	// name, "apply vlan": tests of what a crash leaves end the process here.
	Before func(step string)

	// Patience is how long one operation asks again what the card is too busy for.
	Patience time.Duration

	sys   sysfs
	links Links
}

// Open returns the node whose sys/ and dev/ are below root, "/" for this one.
func Open(root string, links Links) *Node {
	return &Node{Host: kernel{}, Before: func(string) {}, Patience: 2 * time.Second, sys: sysfs(root), links: links}
}

// State returns what vf is now, for [Node.Restore].
func (n *Node) State(ctx context.Context, vf device.VF) (device.State, error) {
	o, err := n.begin("read", vf)
	if err != nil {
		return device.State{}, err
	}
	return binding{o}.state(ctx)
}

// Apply tells vf, through its PF, what want says, and compares it with what the
// kernel then says. The VF is taken from its driver first: nobody may use it
// while it changes.
//
// Asked for what the driver cannot do, a VLAN or a rate, Apply changes nothing and
// returns an [*UnsupportedError]. Whatever else the driver has no notion of is left out.
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

// Restore makes vf what original says, whatever Apply, Attach or an earlier
// Restore did of it. The owner's programs that have the VF open are killed: QEMU should
// have ended before. While another has it open, Restore does nothing but take it from its
// owner, and its error is [unix.EBUSY]. A VF that has gone needs nothing.
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

// restore goes on after a setting that could not be restored, but binds the
// driver, which would put the VF to use, only once all of them are.
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
		// The last one, by which isAlready knows that the rest was done.
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

// keep is the driver that may stay bound while the settings are restored: a
// network driver would run into them.
func keep(original string) string {
	if original == vfioPCI {
		return vfioPCI
	}
	return ""
}

// isAlready reports whether there is nothing to undo. Of a VF that is vfio-pci's
// nobody knows whether a guest has left something in it.
func (o *operation) isAlready(ctx context.Context, original device.State) bool {
	set, bind := settings{o}, binding{o}
	now, err := bind.state(ctx)
	if err != nil || now.Driver == vfioPCI || now.Override == vfioPCI {
		return false
	}
	same := len(set.differences(original.Settings, now.Settings)) == 0
	return same && now.Driver == original.Driver && now.Override == original.Override
}
