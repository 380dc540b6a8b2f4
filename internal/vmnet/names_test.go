package vmnet

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/journal"
)

const maxJob = 1<<26 - 1 // Slurm's largest job number

func TestNamesFitAndLeadBack(t *testing.T) {
	tests := map[string]struct {
		got, want string
		job       uint32
	}{
		"a bridge":            {bridgeName(4217), "svb395", 4217},
		"a VXLAN device":      {VXLAN(4217), "svx395", 4217},
		"a tap":               {TapName(4217, 63), "svt395-63", 4217},
		"the longest of them": {TapName(maxJob, 9999), "svt13ydj3-9999", maxJob},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job, ok := JobOf(tt.got)
			if tt.got != tt.want || job != tt.job || !ok || len(tt.got) > 15 {
				t.Errorf("name %q of job %d, %v; want %q of job %d", tt.got, job, ok, tt.want, tt.job)
			}
		})
	}
}

func TestNamesThatAreNotOurs(t *testing.T) {
	for _, name := range []string{"svb", "svb0395", "svbXY", "svt-", "virbr0", "svc395", "svb99999999"} {
		if job, ok := JobOf(name); ok {
			t.Errorf("%s counts as a link of job %d", name, job)
		}
	}
	for _, name := range []string{"slurmv", "slurmv-1", "slurmv-1-x", "slurmv-1-0-0", "slurmv-01-0", "slurmv-1.0"} {
		if id, err := parseTable(name); err == nil {
			t.Errorf("table %s counts as job %v's", name, id)
		}
	}
	for _, text := range []string{"", "slurmv", "slurmv 1", "eth0 1.0"} {
		if id, err := parseAlias(text); err == nil {
			t.Errorf("alias %q counts as job %v's", text, id)
		}
	}
}

func TestMarksLeadBack(t *testing.T) {
	id := journal.ID{Job: maxJob, Restart: 12}
	if got, err := parseAlias(alias(id)); got != id || err != nil {
		t.Errorf("alias: %v, %v", got, err)
	}
	if got, err := parseTable(table(id)); got != id || err != nil {
		t.Errorf("table: %v, %v", got, err)
	}
}

func TestMAC(t *testing.T) {
	tests := map[string]struct {
		job    uint32
		number int
		want   string
	}{
		"job and VM side by side": {1, 1, "02:00:00:00:40:01"},
		"the first VM":            {4217, 0, "02:00:04:1e:40:00"},
		"all bits":                {maxJob, maxVMs - 1, "02:ff:ff:ff:ff:ff"},
	}
	for name, tt := range tests {
		if got := MAC(tt.job, tt.number).String(); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// VMs of two clusters in one network have different addresses, although their jobs have the same number.
func TestSharedMAC(t *testing.T) {
	seen := map[string]string{}
	for _, cluster := range []string{"one", "two"} {
		for _, job := range []uint32{7, 8, maxJob} {
			for number := range 100 {
				mac, who := SharedMAC(cluster, job, number), fmt.Sprintf("VM %d of job %d of cluster %s", number, job, cluster)
				if other := seen[mac.String()]; other != "" || mac[0] != 2 || len(mac) != 6 {
					t.Errorf("%s has %v; so has: %s", who, mac, other)
				}
				seen[mac.String()] = who
			}
		}
	}
	if a, b := SharedMAC("one", 7, 1), SharedMAC("one", 7, 1); a.String() != b.String() {
		t.Errorf("%v and %v", a, b)
	}
}

func TestAddress(t *testing.T) {
	tests := map[string]struct {
		subnet  string
		number  int
		want    string
		wantErr string
	}{
		"the first VM":          {subnet: "172.30.0.0/16", number: 0, want: "172.30.0.1"},
		"over a byte's end":     {subnet: "172.30.0.0/16", number: 255, want: "172.30.1.0"},
		"from a subnet's host":  {subnet: "172.30.7.9/16", number: 1, want: "172.30.0.2"},
		"the last of a subnet":  {subnet: "10.0.0.0/24", number: 253, want: "10.0.0.254"},
		"not the broadcast":     {subnet: "10.0.0.0/24", number: 254, wantErr: "too small for VM 254"},
		"outside the subnet":    {subnet: "10.0.0.0/24", number: 255, wantErr: "too small for VM 255"},
		"beyond all addresses":  {subnet: "255.255.255.252/30", number: 300, wantErr: "too small"},
		"a negative number":     {subnet: "10.0.0.0/8", number: -1, wantErr: "not one of"},
		"more than MACs":        {subnet: "10.0.0.0/8", number: maxVMs, wantErr: "not one of"},
		"an IPv6 subnet":        {subnet: "fd00::/64", number: 0, wantErr: "not an IPv4 prefix"},
		"a subnet of one alone": {subnet: "10.0.0.1/32", number: 0, wantErr: "too small"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Address(netip.MustParsePrefix(tt.subnet), tt.number)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("%v, error %v; want %q", got, err, tt.wantErr)
				}
			} else if err != nil || got.String() != tt.want {
				t.Errorf("%v, error %v; want %s", got, err, tt.want)
			}
		})
	}
}

func TestCheckPeers(t *testing.T) {
	n := Network{Nodes: 3, Underlay: Underlay{
		Addr: netip.MustParseAddr("10.0.0.1"), Prefix: netip.MustParsePrefix("10.0.0.0/24"),
	}}
	tests := map[string]struct {
		peers   []string
		wantErr string
	}{
		"all others":      {peers: []string{"10.0.0.2", "10.0.0.3"}},
		"a foreign host":  {peers: []string{"10.0.1.2"}, wantErr: "not in the underlay"},
		"this node":       {peers: []string{"10.0.0.1"}, wantErr: "is this node"},
		"everybody":       {peers: []string{"10.0.0.255"}, wantErr: "broadcast"},
		"a mapped one":    {peers: []string{"::ffff:10.0.0.2"}, wantErr: "not in the underlay"},
		"a group":         {peers: []string{"239.1.1.1"}, wantErr: "not in the underlay"},
		"one too many":    {peers: []string{"10.0.0.2", "10.0.0.3", "10.0.0.4"}, wantErr: "3 peers of a job with 3 nodes"},
		"an IPv6 address": {peers: []string{"fe80::1"}, wantErr: "not in the underlay"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var peers []netip.Addr
			for _, p := range tt.peers {
				peers = append(peers, netip.MustParseAddr(p))
			}
			err := n.checkPeers(peers)
			if (err == nil) != (tt.wantErr == "") || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("error = %v, want %q", err, tt.wantErr)
			}
		})
	}
}

func TestChooseUnderlay(t *testing.T) {
	at := func(name, prefix string) Underlay {
		p := netip.MustParsePrefix(prefix)
		return Underlay{Addr: p.Addr(), Prefix: p.Masked(), Interface: name, MTU: 1500}
	}
	eth, ib := at("eth0", "10.0.0.5/24"), at("ib0", "192.168.7.5/24")
	wide := ib
	wide.Prefix = netip.MustParsePrefix("192.168.0.0/16")
	tests := map[string]struct {
		found   []Underlay
		routed  string
		want    string
		result  Underlay
		wantErr string
	}{
		"the default route's":            {found: []Underlay{ib, eth}, routed: "eth0", result: eth},
		"the only one":                   {found: []Underlay{ib}, result: ib},
		"the configured one":             {found: []Underlay{eth, ib}, routed: "eth0", want: "192.168.7.0/24", result: ib},
		"with the configured prefix":     {found: []Underlay{eth, ib}, want: "192.168.9.9/16", result: wide},
		"two and no route":               {found: []Underlay{eth, ib}, wantErr: "10.0.0.5 (eth0), 192.168.7.5 (ib0); set underlay"},
		"none at all":                    {wantErr: "addresses none"},
		"none in the configured prefix":  {found: []Underlay{eth}, want: "10.1.0.0/16", wantErr: "no address of this node is in the underlay 10.1.0.0/16; it has 10.0.0.5 (eth0)"},
		"a route without an address":     {found: []Underlay{eth}, routed: "tun0", result: eth},
		"a route, and several addresses": {found: []Underlay{eth, ib}, routed: "tun0", wantErr: "not clear"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var want netip.Prefix
			if tt.want != "" {
				want = netip.MustParsePrefix(tt.want)
			}
			got, err := choose(tt.found, tt.routed, want)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("error = %v, want %q", err, tt.wantErr)
				}
				return
			}
			if diff := cmp.Diff(tt.result, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); err != nil || diff != "" {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
	if _, err := AutoUnderlay("10.0.0.0"); err == nil || !strings.Contains(err.Error(), `"10.0.0.0" is not a prefix`) {
		t.Errorf("of a text that is no prefix: error = %v", err)
	}
}

func TestNetworkIsValidated(t *testing.T) {
	good := Network{Nodes: 2, Port: 299, Underlay: Underlay{
		Addr: netip.MustParseAddr("10.0.0.1"), Prefix: netip.MustParsePrefix("10.0.0.0/24"), MTU: 9000,
	}}
	if err := good.validate(); err != nil || good.MTU() != 8950 {
		t.Errorf("error %v, MTU %d", err, good.MTU())
	}
	if alone := (Network{Nodes: 1}); alone.validate() != nil || alone.MTU() != 1500 {
		t.Errorf("one node: error %v, MTU %d", alone.validate(), alone.MTU())
	}
	for want, spoil := range map[string]func(*Network){
		"VXLAN port":      func(n *Network) { n.Port = 0 },
		"not an IPv4":     func(n *Network) { n.Underlay.Addr = netip.MustParseAddr("fd00::1") },
		"address 10.9":    func(n *Network) { n.Underlay.Addr = netip.MustParseAddr("10.9.0.1") },
		"is too small":    func(n *Network) { n.Underlay.MTU = 600 },
		"invalid IP is n": func(n *Network) { n.Underlay = Underlay{} },
	} {
		n := good
		spoil(&n)
		if err := n.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want %q", err, want)
		}
	}
}

func TestTapIsValidated(t *testing.T) {
	good := Tap{MAC: MAC(1, 0), Address: netip.MustParseAddr("10.0.0.1")}
	site := Tap{MAC: MAC(1, 0), Bridge: "br0"}
	for name, tt := range map[string]struct {
		tap Tap
		ok  bool
	}{
		"on the job's network":  {good, true},
		"on a bridge":           {site, true},
		"without an address":    {Tap{MAC: good.MAC}, false},
		"with a group's MAC":    {Tap{MAC: net.HardwareAddr{1, 0, 0, 0, 0, 0}, Bridge: "br0"}, false},
		"without a MAC":         {Tap{Bridge: "br0"}, false},
		"with a negative index": {Tap{Index: -1, MAC: good.MAC, Bridge: "br0"}, false},
	} {
		if err := tt.tap.validate(); (err == nil) != tt.ok {
			t.Errorf("%s: error = %v", name, err)
		}
	}
}

func TestVFMACsAreTheirOwn(t *testing.T) {
	seen := map[string]bool{MAC(7, 3).String(): true}
	for vf := range 63 {
		mac := VFMAC(MAC(7, 3), vf)
		if seen[mac.String()] || mac[0]&3 != 2 {
			t.Errorf("VF %d has %v, which is another's or not locally administered", vf, mac)
		}
		seen[mac.String()] = true
	}
}
