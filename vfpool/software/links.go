package software

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/bridgeport"
)

// patience is how long again repeats a call while something is busy.
const patience = 2 * time.Second

// again repeats f, which must be repeatable, while the kernel says that something is busy
// or that a list changed while it was read.
func again(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := f()
		if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// inTurn takes the steps in order until one fails.
func inTurn(ctx context.Context, steps ...func() error) error {
	for _, step := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := again(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

// find returns the link of that name, or nil if there is none.
func find(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	var none netlink.LinkNotFoundError
	if errors.As(err, &none) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for link %s: %w", name, err)
	}
	return link, nil
}

// isOpen reports whether a program has a tap open. Only then the tap has a carrier (tun.c).
func isOpen(tap string) (bool, error) {
	link, err := find(tap)
	return link != nil && link.Attrs().RawFlags&unix.IFF_LOWER_UP != 0, err
}

// makeLink makes a link of this package unless it exists, and marks it. Marking also
// keeps the host's IPv6 off the link: a VM could reach the host at an address there.
func makeLink(link netlink.Link, alias string) (netlink.Link, error) {
	name := link.Attrs().Name
	found, err := find(name)
	if err != nil {
		return nil, err
	}
	if found == nil {
		if err := netlink.LinkAdd(link); err != nil {
			return nil, fmt.Errorf("make %s %s: %w", link.Type(), name, bridgeport.Lacking(err, link.Type()))
		}
		found = link
	} else if err := checkOurs(found, link.Type()); err != nil {
		return nil, err
	}
	return found, bridgeport.Mark(found, alias)
}

func checkOurs(link netlink.Link, kind string) error {
	a := link.Attrs()
	if link.Type() != kind || !ours(a.Alias) {
		return fmt.Errorf("%s is not ours: a %s with alias %q; rename it", a.Name, link.Type(), a.Alias)
	}
	return nil
}

func setUp(link netlink.Link) error {
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", link.Attrs().Name, err)
	}
	return nil
}

func enslave(link, bridge netlink.Link) error {
	if err := netlink.LinkSetMaster(link, bridge); err != nil {
		return fmt.Errorf("put %s on bridge %s: %w", link.Attrs().Name, bridge.Attrs().Name, err)
	}
	return nil
}

// remove deletes the link of that name if it exists. The link must be of this kind and
// belong to this package.
func remove(name, kind string) error {
	link, err := find(name)
	if err != nil || link == nil {
		return err
	}
	if err := checkOurs(link, kind); err != nil {
		return err
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete %s %s: %w", kind, name, err)
	}
	return nil
}
