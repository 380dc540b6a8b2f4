package software

import (
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/slurm-v/slurm-v/config"
)

func declaredPF(rate config.Rate, vfs, reserve int) pf {
	return pf{SoftwarePF: config.SoftwarePF{Rate: rate, VFs: vfs}, reserve: reserve}
}

func TestTheClassOfAVF(t *testing.T) {
	small, fast := declaredPF(100, 3, 0), declaredPF(100_000, 64, 5)
	tests := map[string]struct {
		pf       pf
		min, max uint32
		want     htbClass
	}{
		"a minimum, and up to the PF's rate":  {small, 60, 0, htbClass{7_500_000, 12_500_000, 375_000}},
		"half of it has half the quantum":     {small, 30, 0, htbClass{3_750_000, 12_500_000, 187_500}},
		"a maximum":                           {small, 60, 80, htbClass{7_500_000, 10_000_000, 375_000}},
		"a maximum above the PF's rate":       {small, 60, 200, htbClass{7_500_000, 12_500_000, 375_000}},
		"no minimum: a share of what is left": {small, 0, 0, htbClass{41_666, 12_500_000, 2083}},
		"a maximum below that share":          {declaredPF(1000, 1, 5), 0, 1, htbClass{125_000, 125_000, 6250}},
		"a minimum below that share":          {declaredPF(1000, 1, 5), 1, 0, htbClass{1_250_000, 125_000_000, 62_500}},
		"many VFs share the reserve":          {fast, 0, 0, htbClass{9_765_625, 12_500_000_000, 65_536}},
		"above what 32 bits can say":          {fast, 80_000, 0, htbClass{10_000_000_000, 12_500_000_000, 67_108_864}},
		"a quantum of one frame at least":     {declaredPF(10, 16, 5), 0, 0, htbClass{3906, 1_250_000, 1600}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.pf.shape(tt.min, tt.max); got != tt.want {
				t.Errorf("shape = %+v, want %+v", got, tt.want)
			}
		})
	}
}

// HTB always gives classes their own rates, even if the sum exceeds their parent's rate.
func TestSharesFitIntoTheReserve(t *testing.T) {
	for _, reserve := range []int{1, 5, 30} {
		for _, vfs := range []int{1, 4, 16, 256} {
			p := declaredPF(10_000, vfs, reserve)
			if sum, spare := p.share()*uint64(vfs), p.speed()*uint64(reserve)/100; sum > spare {
				t.Errorf("%d VFs without a minimum have %d bytes/s of %d", vfs, sum, spare)
			}
		}
	}
}

func TestNamesFitAndDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{"a", "a-1", "br0", "soft-1", "software-two", "software-three", "abcdefghijklmno"} {
		for _, made := range []string{tapName(name, 255), tapName(name, 1), plugName(name, 255), wireEndName(name, 255), ifbName(name), tagBridgeName(name, 4094), uplinkName(tagBridgeName(name, 4094))} {
			if len(made) > 15 || seen[made] {
				t.Errorf("%s of %s: %d bytes, taken %v", made, name, len(made), seen[made])
			}
			seen[made] = true
		}
		if !isPlugOf(name, plugName(name, 7)) || isPlugOf("a", plugName("a-1", 7)) {
			t.Errorf("whose %s is, is not known", plugName(name, 7))
		}
	}
	if name, tag, ok := split(bridgePrefix, tagBridgeName("br-x", 2000)); name != "br-x" || tag != 2000 || !ok {
		t.Errorf("split: %s %d %v", name, tag, ok)
	}
	for _, foreign := range []string{"svv", "svv-1", "svvbr0", "svvbr0-x", "svvbr0--1", "br0-1"} {
		if _, _, ok := split(bridgePrefix, foreign); ok && foreign != "svvbr0--1" {
			t.Errorf("%s looks like ours", foreign)
		}
	}
}

func TestChooseUplink(t *testing.T) {
	link := func(kind, name string) netlink.Link {
		return &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: name}, LinkType: kind}
	}
	tap, veth, container := link("tuntap", "svfx-1"), link("veth", "veth0"), link("veth", "veth1")
	eth0, bond := link("device", "eth0"), link("bond", "bond0")
	port, vf := link("veth", "svp9-1"), link("veth", "svsx-1")
	port.Attrs().Alias, vf.Attrs().Alias = "slurmv 9.0", "slurmv vf x/1"
	tests := map[string]struct {
		ports []netlink.Link
		want  string
		none  string
	}{
		"no port":                  {nil, "", "bridge br0 has no port that leads to other nodes"},
		"VMs only":                 {[]netlink.Link{tap}, "", "bridge br0 has no port that leads to other nodes"},
		"a card beside VMs":        {[]netlink.Link{tap, eth0}, "eth0", ""},
		"a card beside containers": {[]netlink.Link{veth, bond, container}, "bond0", ""},
		"a veth beside VMs":        {[]netlink.Link{port, veth, vf}, "veth0", ""},
		"one veth":                 {[]netlink.Link{veth, tap}, "veth0", ""},
		"two veths":                {[]netlink.Link{container, veth}, "", "which port of bridge br0 leads to other nodes is not clear (veth0, veth1; a bond would be one)"},
		"two cards":                {[]netlink.Link{eth0, bond}, "", "which port of bridge br0 leads to other nodes is not clear (bond0, eth0; a bond would be one)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, chosen := chooseUplink("br0", tt.ports), ""
			if got.link != nil {
				chosen = got.link.Attrs().Name
			}
			if chosen != tt.want || got.none != tt.none {
				t.Errorf("uplink %q, %q", chosen, got.none)
			}
		})
	}
}
