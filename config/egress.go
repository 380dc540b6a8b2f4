package config

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// A Destination is what VMs may connect to outside of their network: addresses and ports.
type Destination struct {
	Name        string       // a host name, or "" if Prefix is set
	Prefix      netip.Prefix // IPv4
	First, Last uint16       // ports
}

// anywhere is the text of all addresses.
const anywhere = "any"

var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)

// ParseDestination reads HOST[:PORT[-PORT]], where HOST is an IPv4 address, an IPv4 network, a
// host name, or "any".
func ParseDestination(text string) (d Destination, err error) {
	host, ports, some := strings.Cut(text, ":")
	d.First, d.Last = 1, 65535
	if some {
		if d.First, d.Last, err = parsePorts(ports); err != nil {
			return d, err
		}
	}
	if host == anywhere {
		host = "0.0.0.0/0"
	}
	addr, addrErr := netip.ParseAddr(host)
	prefix, prefixErr := netip.ParsePrefix(host)
	switch {
	case addrErr == nil && addr.Is4():
		d.Prefix = netip.PrefixFrom(addr, addr.BitLen())
	case prefixErr == nil && prefix.Addr().Is4() && prefix == prefix.Masked():
		d.Prefix = prefix
	case hostName.MatchString(host) && strings.ContainsAny(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"):
		d.Name = host
	default:
		return d, fmt.Errorf("%s is not an IPv4 address, an IPv4 network such as 10.1.0.0/16, a host name, or any", Quote(host))
	}
	return d, nil
}

func parsePorts(text string) (first, last uint16, err error) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	a, err1 := strconv.ParseUint(from, 10, 16)
	b, err2 := strconv.ParseUint(to, 10, 16)
	if err1 != nil || err2 != nil || a == 0 || a > b {
		return 0, 0, fmt.Errorf("%s is not a port such as 443, or ports such as 27000-27009", Quote(text))
	}
	return uint16(a), uint16(b), nil
}

// egress checks a list of destinations.
func egress(key string, all []string) error {
	for _, text := range all {
		if _, err := ParseDestination(text); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}
