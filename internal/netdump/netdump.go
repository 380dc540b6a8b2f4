// Package netdump reads the kernel's lists of links, addresses, routes and the
// like whole.
//
// Such a list comes in several messages. If it changes between two of them, as
// it does all the time where VMs come and go, the kernel says so (NLM_F_DUMP_INTR
// in netlink(7)), and what was read may lack something.
package netdump

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// attempts bounds how often a list is read that changes each time.
const attempts = 100

// Whole returns what list returns, read again as long as it was interrupted.
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

// Addrs returns the addresses of a link; netlink has the families.
func Addrs(link netlink.Link, family int) ([]netlink.Addr, error) {
	return Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, family) })
}
