package vmlaunch

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/netlab"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/vmnet"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmlaunch/plan/plantest"
)

// The map of the job's VMs is in the user's hands: who says where a node is may be
// the user.
func TestAMapConnectsVMsToNodesOfTheJobOnly(t *testing.T) {
	names := map[string]string{"n1": "10.8.0.1", "n2": "10.9.0.2", "lo": "10.8.0.3", "named": "10.9.0.4"}
	slurm := map[string]string{"n1": "10.9.0.1", "n2": "10.9.0.2", "lo": "localhost", "named": "10.8.0.4"}
	for name, tt := range map[string]struct {
		node, addr, peers string
		want              string // in the error
	}{
		"the address that Slurm has": {node: "n1", addr: "10.9.0.1"},
		"the address of its name":    {node: "named", addr: "10.9.0.4"},
		"a host of the underlay": {node: "n1", addr: "10.9.0.66",
			want: "node n1 is said to be at 10.9.0.66, but 10.9.0.1 is at [10.9.0.1]; if it is there in the underlay, set peers in [network.default] of the configuration"},
		"where the site has names for them": {node: "n1", addr: "10.9.0.1", peers: "%n-ib",
			want: "node n1 is said to be at 10.9.0.1, but 10.8.0.1 is at [10.8.0.1]"},
		"that host, where the site allows any": {node: "n1", addr: "10.9.0.66", peers: config.PeersAny},
		"a node of another job":                {node: "n3", addr: "10.9.0.3", want: `"n3", which is to be at 10.9.0.3, is no node of this job`},
		"another node's address":               {node: "n1", addr: "10.9.0.2", want: "node n1 is said to be at 10.9.0.2"},
		"a name that resolves elsewhere":       {node: "lo", addr: "10.9.0.66", want: "node lo is said to be at 10.9.0.66, but localhost is at [127.0.0.1]"},
	} {
		t.Run(name, func(t *testing.T) {
			lab := newUnderlay(t)
			p := plantest.Plan(t)
			p.Network.Peers, p.Network.Underlay = tt.peers, "10.9.0.0/24"
			addrs := func(context.Context, []string) (map[string]string, error) { return slurm, nil }
			v := &VMs{Set: machine.NewSet(p, nil, nil), links: &network{plan: p, slurm: Slurmctld{NodeAddrs: addrs}, hosts: names}}
			v.Machines, v.Clock = nil, machine.StartStopwatch(time.Time{})
			v.Plan.State = t.TempDir()
			err := lab.Do(func() error {
				if err := v.links.createBridge(t.Context()); err != nil {
					return err
				}
				return v.connect(t.Context(), []nodeagent.NodeVMs{
					{Node: "n2", Rank: 1, Underlay: "10.9.0.2"}, {Node: tt.node, Underlay: tt.addr},
				})
			})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error = %v, want %s", err, tt.want)
			}
			if got := sendsTo(t, lab, v, tt.addr); got != (tt.want == "") {
				t.Errorf("frames go to %s: %v", tt.addr, got)
			}
		})
	}
}

// newUnderlay makes a node with an address where others are.
func newUnderlay(t *testing.T) *netlab.Node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("makes network namespaces: run as root")
	}
	lab, err := netlab.NewNode()
	if err == nil {
		err = lab.Bridge("eth0")
	}
	if err == nil {
		err = lab.Address("eth0", netip.MustParsePrefix("10.9.0.2/24"))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lab.Close() })
	return lab
}

// sendsTo reports whether the job's frames for everybody go to that address.
func sendsTo(t *testing.T, lab *netlab.Node, v *VMs, addr string) (found bool) {
	t.Helper()
	err := lab.Do(func() error {
		link, err := netlink.LinkByName(vmnet.VXLAN(v.Plan.Job.ID.Job))
		if err != nil {
			return err
		}
		entries, err := netlink.NeighList(link.Attrs().Index, unix.AF_BRIDGE)
		found = slices.ContainsFunc(entries, func(e netlink.Neigh) bool { return e.IP.String() == addr })
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestWhoIsAskedWhereTheNodesAre(t *testing.T) {
	broken := errors.New("slurmctld does not answer")
	for name, tt := range map[string]struct {
		change func(*plan.Plan)
		asked  bool
	}{
		"several nodes":           {func(*plan.Plan) {}, true},
		"one node":                {func(p *plan.Plan) { p.Job.Nodes = 1 }, false},
		"a bridge of the site":    {func(p *plan.Plan) { p.Network.Type = config.NetworkBridge }, false},
		"where any address is ok": {func(p *plan.Plan) { p.Network.Peers = config.PeersAny }, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := plantest.Plan(t)
			tt.change(&p)
			w := network{plan: p, slurm: Slurmctld{Hosts: func(context.Context, config.Network) (map[string]string, error) { return nil, broken }}}
			if err := w.askHosts(t.Context()); errors.Is(err, broken) != tt.asked {
				t.Errorf("error = %v, asked: want %v", err, tt.asked)
			}
		})
	}
}
