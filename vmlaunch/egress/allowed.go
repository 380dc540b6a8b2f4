package egress

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/slurm-v/slurm-v/config"
)

// destinations are those that VMs may connect to.
type destinations []config.Destination

// allow reports whether VMs may connect there. Some addresses nobody may mean: those of the
// node itself that only its own programs reach, and those that mean no host.
func (all destinations) allow(ctx context.Context, to netip.AddrPort, n *names) bool {
	addr := to.Addr()
	if addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.IsMulticast() || addr.IsUnspecified() || addr.As4()[0] == 0 || addr.As4()[0] == 255 {
		return false
	}
	return slices.ContainsFunc(all, func(d config.Destination) bool {
		if to.Port() < d.First || to.Port() > d.Last {
			return false
		}
		return d.Prefix.Contains(addr) || d.Name != "" && slices.Contains(n.addresses(ctx, d.Name), addr)
	})
}

// names resolves host names as the node does, and remembers the answers for a while.
type names struct {
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

	mu    sync.Mutex
	known map[string]answer
}

type answer struct {
	addrs []netip.Addr
	until time.Time
}

const (
	remembered = 30 * time.Second
	mostNames  = 1024
	patience   = 10 * time.Second
)

func newNames() *names {
	return &names{lookup: net.DefaultResolver.LookupNetIP, known: map[string]answer{}}
}

// addresses returns the IPv4 addresses of a host, none if it is not known.
func (n *names) addresses(ctx context.Context, host string) []netip.Addr {
	n.mu.Lock()
	a, known := n.known[host]
	n.mu.Unlock()
	if known && time.Now().Before(a.until) {
		return a.addrs
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	found, err := n.lookup(ctx, "ip4", host)
	if err != nil {
		found = nil
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.known) >= mostNames {
		clear(n.known)
	}
	n.known[host] = answer{found, time.Now().Add(remembered)}
	return found
}
