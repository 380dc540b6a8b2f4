// Package sriov reads, sets and hands over the virtual functions (VFs) of a node's
// SR-IOV network cards.
//
// [Cards.PFs] lists the cards' physical functions (PFs) and their VFs. [Cards.Apply] tells
// a VF's PF by netlink what the VF's VM may do. [Cards.Attach] binds the VF to vfio-pci
// and gives it to the account that runs QEMU. [Cards.Restore] brings back what
// [Cards.State] had read; it works from wherever the others stopped, and may be repeated.
// No kernel interface tells what a driver can set for a VF, so drivers.go has a table of
// that.
//
// [Cards.Create] makes VFs, which the administrator asks for at boot. The package keeps no
// record of which job has a VF. It reaches the machine through the files below a root
// directory and, where files do not suffice, through [Links] and [Kernel]. The package
// sriovtest has a made-up node that replaces all three.
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

	// Before is called with the name of each action of Apply, Attach and Restore, such as
	// "apply vlan", before the action. Crash tests end the process here.
	Before func(action string)

	// Patience is how long an operation retries while the card is busy.
	Patience time.Duration

	sys   sysfs
	links Links
}

// Open returns the cards of the node whose sys/ and dev/ are below root, "/" for this one.
func Open(root string, links Links) *Cards {
	return &Cards{Kernel: kernel{}, Before: func(string) {}, Patience: 2 * time.Second, sys: sysfs(root), links: links}
}

// State returns the present state of vf, for [Cards.Restore]. A VF that a program has open is in
// use by the site itself, and Restore would kill that program as the job's: the error is
// [unix.EBUSY].
func (c *Cards) State(ctx context.Context, vf device.VF) (device.State, error) {
	o, err := c.begin("read", vf)
	if err != nil {
		return device.State{}, err
	}
	bind := binding{o}
	if err := bind.idle(ctx); err != nil {
		return device.State{}, err
	}
	return bind.state(ctx)
}

// Apply sets vf, through its PF, to want, and checks that the kernel reports these
// settings. It takes the VF from its driver first: nobody may use the VF while it
// changes.
//
// If the driver cannot set a VLAN, a P_Key or a rate that want has, Apply changes nothing and
// returns an [*UnsupportedError]. It omits other settings that the driver does not
// support.
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
	if want, err = set.chooseKeys(ctx, want); err != nil {
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

// Restore brings vf to the original state, however far Apply, Attach or an earlier
// Restore got. It kills the owner's programs that have the VF open; QEMU should have
// ended before. While another user's program has it open, Restore only takes the VF from
// its owner, and returns [unix.EBUSY]. If the VF is gone, Restore does nothing.
func (c *Cards) Restore(ctx context.Context, vf device.VF, original device.State) error {
	o, err := c.begin("restore", vf)
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	// What was set while the link was up must be undone, even if the driver refuses that now.
	o.pf.Caps = capsOfDriver(o.pf)
	if o.isAlready(ctx, original) {
		return nil
	}
	if err := o.restore(ctx, original); err != nil && !o.gone() {
		return err
	}
	return nil
}

// Remains returns the settings of a VF as a job may have left it: zero for one that a driver of the
// host has, since Restore binds such a driver last, and for one whose PF cannot list its VFs.
func (c *Cards) Remains(ctx context.Context, vf device.VF) (device.Settings, error) {
	o, err := c.begin("read", vf)
	if errors.Is(err, ErrGone) {
		return device.Settings{}, nil
	}
	if err != nil {
		return device.Settings{}, err
	}
	if driver := (binding{o}).driver(); driver != "" && driver != vfioPCI {
		return device.Settings{}, nil
	}
	s, err := setter{o}.read(ctx)
	if errors.Is(err, ErrUnreadable) || errors.Is(err, ErrGone) {
		return device.Settings{}, nil
	}
	return s, o.fail("settings", "", err, "")
}

// Reset restores vf to what a new VF is, where its original state is lost. It stays bound to vfio-pci
// if it is. While a program has it open, the error is [unix.EBUSY].
func (c *Cards) Reset(ctx context.Context, vf device.VF) error {
	now, err := c.State(ctx, vf)
	if err != nil {
		return err
	}
	o, err := c.begin("reset", vf)
	if err != nil {
		return err
	}
	now.Settings, now.Owner = setter{o}.forNobody(), owner.IDs{}
	return c.Restore(ctx, vf, now)
}

// restore goes on if a setting cannot be restored. But it binds the driver, which would
// put the VF to use, only if all of them are restored.
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
		// This action is the last: isAlready takes it as the sign that all others were
		// done.
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
	set, bind := setter{o}, binding{o}
	now, err := bind.state(ctx)
	if err != nil || now.Driver == vfioPCI || now.Override == vfioPCI {
		return false
	}
	same := len(set.differences(original.Settings, now.Settings)) == 0
	return same && now.Driver == original.Driver && now.Override == original.Override
}
