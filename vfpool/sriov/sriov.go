// Package sriov reads, sets and hands over the virtual functions (VFs) of a node's
// SR-IOV network cards.
//
// [Cards.PFs] lists the cards' physical functions (PFs) and their VFs. What a VF's
// VM may do is told to the VF's PF by netlink ([Cards.Apply]); then the VF is bound
// to vfio-pci and given to the account that runs QEMU ([Cards.Attach]).
// [Cards.Restore] brings back what [Cards.State] had read, from wherever the others
// stopped, and may be repeated. No kernel interface says what a driver lets a PF
// do for its VFs: that is a table, drivers.go.
//
// The package never makes VFs, the administrator does at boot, and it keeps no
// record of whose a VF is. It touches the machine through the files below a root
// directory, and two seams where files are not enough: [Links] and [Kernel]. The
// package sriovtest has a node of which all three are made up.
package sriov

import (
	"context"
	"errors"
	"time"

	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/vfpool/device"
)

// Cards are the SR-IOV network cards of a node. The methods may be called from
// several goroutines, for different VFs.
type Cards struct {
	Kernel Kernel

	// Before is called before every action of Apply, Attach and Restore with its
	// name, "apply vlan": tests of what a crash leaves end the process here.
	Before func(action string)

	// Patience is how long one operation asks again what the card is too busy for.
	Patience time.Duration

	sys   sysfs
	links Links
}

// Open returns the cards of the node whose sys/ and dev/ are below root, "/" for this one.
func Open(root string, links Links) *Cards {
	return &Cards{Kernel: kernel{}, Before: func(string) {}, Patience: 2 * time.Second, sys: sysfs(root), links: links}
}

// State returns what vf is now, for [Cards.Restore].
func (c *Cards) State(ctx context.Context, vf device.VF) (device.State, error) {
	o, err := c.begin("read", vf)
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
func (c *Cards) Apply(ctx context.Context, vf device.VF, want device.Settings) error {
	o, err := c.begin("apply", vf)
	if err != nil {
		return err
	}
	set, bind := setter{o}, binding{o}
	if want.Link == "" {
		want.Link = device.LinkAuto
	}
	if err := set.refuse(want); err != nil {
		return err
	}
	steps := []action{
		{"idle", bind.idle},
		{"link down", set.setting(LinkState, device.Settings{Link: device.LinkDisable})},
		{"driver_override", bind.override(vfioPCI)},
		{"unbind", bind.unbindUnless(vfioPCI)},
		{"reset", bind.reset},
	}
	for _, attribute := range attributes {
		steps = append(steps, action{string(attribute), set.setting(attribute, want)})
	}
	return o.run(ctx, append(steps, action{"read back", set.readBack(want)})...)
}

// Attach binds vf to vfio-pci and makes owner the only account that can open it.
func (c *Cards) Attach(ctx context.Context, vf device.VF, owner owner.IDs) error {
	o, err := c.begin("attach", vf)
	if err != nil {
		return err
	}
	bind := binding{o}
	if vf.Unusable.Seen != "" {
		return o.fail("vfio", vf.PCI, errors.New("it cannot be given to a VM"), vf.Unusable.String())
	}
	return o.run(ctx,
		action{"load", bind.load(vfioPCI)},
		action{"driver_override", bind.override(vfioPCI)},
		action{"unbind", bind.unbindUnless(vfioPCI)},
		action{"bind", bind.bind(vfioPCI)},
		action{"idle", bind.idle},
		action{"owner", bind.own(owner, groupMode)},
	)
}

// Restore makes vf what original says, whatever Apply, Attach or an earlier
// Restore did of it. The owner's programs that have the VF open are killed: QEMU should
// have ended before. While another has it open, Restore does nothing but take it from its
// owner, and its error is [unix.EBUSY]. A VF that has gone needs nothing.
func (c *Cards) Restore(ctx context.Context, vf device.VF, original device.State) error {
	o, err := c.begin("restore", vf)
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
	set, bind := setter{o}, binding{o}
	if err := o.run(ctx, action{"take back", bind.takeBack}, action{"evict", bind.evict}, action{"idle", bind.idle}); err != nil {
		return err
	}
	if err := o.runAll(ctx, o.undo(original)...); err != nil {
		return err
	}
	return o.run(ctx,
		action{"read back", set.readBack(original.Settings)},
		action{"owner", bind.giveBack(original)},
		action{"bind", bind.bindAgain(original.Driver)},
		// The last one, by which isAlready knows that the rest was done.
		action{"driver_override", bind.override(original.Override)},
	)
}

func (o *operation) undo(original device.State) []action {
	set, bind := setter{o}, binding{o}
	steps := []action{
		{"link down", set.setting(LinkState, device.Settings{Link: device.LinkDisable})},
		{"unbind", bind.unbindUnless(keep(original.Driver))},
	}
	for i := range attributes {
		attribute := attributes[len(attributes)-1-i]
		if attribute != LinkState {
			steps = append(steps, action{string(attribute), set.setting(attribute, original.Settings)})
		}
	}
	return append(steps, action{"reset", bind.reset}, action{string(LinkState), set.setting(LinkState, original.Settings)})
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
	set, bind := setter{o}, binding{o}
	now, err := bind.state(ctx)
	if err != nil || now.Driver == vfioPCI || now.Override == vfioPCI {
		return false
	}
	same := len(set.differences(original.Settings, now.Settings)) == 0
	return same && now.Driver == original.Driver && now.Override == original.Override
}
