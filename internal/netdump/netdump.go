// Package netdump reads complete lists of links, addresses, routes and the like from the
// kernel.
//
// The kernel sends a list in several messages. If the list changes between two of them,
// as happens all the time while VMs come and go, something may be missing. The kernel
// then sets a flag (NLM_F_DUMP_INTR in netlink(7)).
package netdump

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// attempts bounds how often a list that keeps changing is read.
const attempts = 100

// Whole calls list until it returns a list that did not change meanwhile.
func Whole[T any](list func() ([]T, error)) (all []T, err error) {
	for range attempts {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return nil, err
}

// Links returns the network interfaces.
func Links() ([]netlink.Link, error) { return Whole(netlink.LinkList) }

// Addrs returns the addresses of a link. family is a constant of package netlink.
func Addrs(link netlink.Link, family int) ([]netlink.Addr, error) {
	return Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, family) })
}
