package sriov_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vfpool/sriov"
	"github.com/slurm-v/slurm-v/vfpool/sriov/sriovtest"
)

func TestPFs(t *testing.T) {
	fake := sriovtest.New(t,
		sriovtest.Card{Name: "eth0", Driver: "igb", Speed: 1000, TotalVFs: 7, VFs: 2, HostDriver: "igbvf"},
		sriovtest.Card{Name: "ib0", Driver: "mlx5_core", InfiniBand: true, Speed: 100000, NUMA: 1, VFs: 1, NoIOMMU: true},
	)
	pfs, err := fake.Open().PFs()
	if err != nil {
		t.Fatal(err)
	}
	const advice = "switch the IOMMU on in the firmware (VT-d, AMD-Vi) and boot with intel_iommu=on (on AMD with amd_iommu=on)"
	off := device.Reason{Seen: "it has no IOMMU group", Advice: advice}
	want := []device.PF{{
		Name: "eth0", Kind: device.SRIOV, PCI: "0000:01:00.0", Driver: "igb", LinkLayer: "ether", Speed: 1000, Up: true, TotalVFs: 7,
		Caps: device.Caps{MAC: true, VLAN: true, SpoofCheck: true, Trust: true, MaxRate: true, MaxNeedsLink: true},
		VFs: []device.VF{
			{PF: "eth0", Index: 0, Kind: device.SRIOV, PCI: "0000:01:10.0", Device: "0000:01:10.0", Group: 101},
			{PF: "eth0", Index: 1, Kind: device.SRIOV, PCI: "0000:01:10.1", Device: "0000:01:10.1", Group: 102},
		},
	}, {
		Name: "ib0", Kind: device.SRIOV, PCI: "0000:05:00.0", Driver: "mlx5_core", LinkLayer: "infiniband", Speed: 100000, Up: true, NUMA: 1, TotalVFs: 1,
		Caps:     device.Caps{LinkState: true, GUID: true},
		VFs:      []device.VF{{PF: "ib0", Index: 0, Kind: device.SRIOV, PCI: "0000:05:10.0", Device: "0000:05:10.0", NUMA: 1, Group: -1, Unusable: off}},
		Unusable: device.Reason{Seen: "no VF can be used; for VF 0, it has no IOMMU group", Advice: advice},
		Notes: []device.Reason{{
			Seen:   "its driver mlx5_core does not check which addresses a VF sends from",
			Advice: "only what the fabric does (partitions) keeps jobs apart",
		}},
	}}
	if diff := cmp.Diff(want, pfs); diff != "" {
		t.Errorf("PFs differ (-want +got):\n%s", diff)
	}
}

func TestPFsOfAMachineWithout(t *testing.T) {
	if pfs, err := sriov.Open(t.TempDir(), nil).PFs(); err != nil || len(pfs) != 0 {
		t.Errorf("PFs = %v, %v", pfs, err)
	}
}

// edit changes files of a made-up node: "" removes a file, a text with "->" makes a link.
func edit(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		to, link := strings.CutPrefix(text, "->")
		var err error
		switch {
		case link:
			err = os.Symlink(to, path)
		case text != "":
			if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
				err = os.WriteFile(path, []byte(text), 0o644)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

const (
	pf0 = "sys/bus/pci/devices/0000:01:00.0/"
	vf0 = "sys/bus/pci/devices/0000:01:10.0/"
)

func TestWhyVFsCannotBeUsed(t *testing.T) {
	tests := map[string]struct {
		card  sriovtest.Card
		files map[string]string
		pf    string // Unusable, its beginning
		vf    string // of VF 0
	}{
		"a card that is fine":   {},
		"no VFs were made":      {files: map[string]string{pf0 + "sriov_numvfs": "0\n"}, pf: "it has no VFs: make them at boot: write create_per_pf = { eth0 = 2 } into [vf] of the configuration, and enable slurmv-vfs.service"},
		"SR-IOV off in a card":  {files: map[string]string{pf0 + "sriov_totalvfs": "0\n"}, pf: "SR-IOV is switched off in the card"},
		"a link that is down":   {card: sriovtest.Card{Down: true}, pf: "its link is down: ip link set eth0 up"},
		"switchdev mode":        {card: sriovtest.Card{Switchdev: true}, pf: "its switch is in switchdev mode, in which VFs are not set through the PF: devlink dev eswitch set pci/0000:01:00.0 mode legacy"},
		"no interface":          {files: map[string]string{pf0 + "net": ""}, pf: "it has no network interface here: load its driver"},
		"one group for all":     {card: sriovtest.Card{OneGroup: true}, pf: "no VF can be used; for VF 0, its IOMMU group 101", vf: "its IOMMU group 101 has other devices (0000:01:10.1): put the card"},
		"no IOMMU":              {card: sriovtest.Card{NoIOMMU: true}, pf: "no VF can be used; for VF 0, it has no", vf: "it has no IOMMU group"},
		"a container has one":   {card: sriovtest.Card{HostDriver: "igbvf"}, files: map[string]string{vf0 + "net/v01:10.0": ""}, vf: "its network interface is in another network namespace"},
		"a bridge has one":      {card: sriovtest.Card{HostDriver: "igbvf"}, files: map[string]string{vf0 + "net/v01:10.0/master": "->../../br7"}, vf: "its network interface v01:10.0 is a port of br7 on this host"},
		"a VF's own NUMA nodes": {files: map[string]string{vf0 + "numa_node": "-1\n"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.card.Driver = "mlx5_core"
			fake := sriovtest.New(t, card(tt.card))
			edit(t, fake.Root, tt.files)
			pfs, err := fake.Open().PFs()
			if err != nil || len(pfs) != 1 {
				t.Fatalf("PFs = %v, %v", pfs, err)
			}
			checkReason(t, "the PF", pfs[0].Unusable.String(), tt.pf)
			if len(pfs[0].VFs) > 0 {
				checkReason(t, "VF 0", pfs[0].VFs[0].Unusable.String(), tt.vf)
			}
		})
	}
}

func checkReason(t *testing.T, what, got, want string) {
	t.Helper()
	if (got == "") != (want == "") || !strings.HasPrefix(got, want) {
		t.Errorf("%s is unusable: %q, want %q", what, got, want)
	}
}

func TestTheInterfaceOfAPF(t *testing.T) {
	tests := map[string]struct {
		files map[string]string
		want  string
	}{
		"the only one": {want: "eth0"},
		"that of the first port": {map[string]string{
			pf0 + "net/eth0/dev_port": "1\n", pf0 + "net/eth1/dev_port": "0\n",
		}, "eth1"},
		"not a VF's representor": {map[string]string{
			pf0 + "net/eth0/phys_port_name": "p0\n", pf0 + "net/a0/phys_port_name": "pf0vf0\n", pf0 + "net/a0/dev_port": "0\n",
		}, "eth0"},
		"its address where it has none": {map[string]string{pf0 + "net": ""}, "0000:01:00.0"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			fake := sriovtest.New(t, card(sriovtest.Card{Driver: "mlx5_core"}))
			edit(t, fake.Root, tt.files)
			if pf, _ := first(t, fake.Open()); pf.Name != tt.want {
				t.Errorf("name = %q, want %q", pf.Name, tt.want)
			}
		})
	}
}

func TestOtherDevicesWithVFsAreNotListed(t *testing.T) {
	fake := sriovtest.New(t, card(sriovtest.Card{Driver: "nvme"}))
	edit(t, fake.Root, map[string]string{pf0 + "class": "0x010802\n"})
	if pfs, err := fake.Open().PFs(); err != nil || len(pfs) != 0 {
		t.Errorf("PFs = %v, %v", pfs, err)
	}
}

func TestExplain(t *testing.T) {
	tests := map[string]struct {
		card   sriovtest.Card
		files  map[string]string
		driver bool // vfio-pci is not loaded
		want   []string
	}{
		"nothing is wrong":     {},
		"no card":              {files: map[string]string{pf0: ""}, want: []string{"fatal: there is no network card with SR-IOV | switch SR-IOV on in the machine's firmware"}},
		"the IOMMU is off":     {card: sriovtest.Card{NoIOMMU: true}, want: []string{"fatal: the IOMMU is off | switch the IOMMU on in the firmware (VT-d, AMD-Vi)"}},
		"a VF without a group": {files: map[string]string{vf0 + "iommu_group": ""}, want: []string{"eth0: VF 0: it has no IOMMU group | switch the IOMMU on"}},
		"no VFs":               {files: map[string]string{pf0 + "sriov_numvfs": "0\n"}, want: []string{"fatal eth0: it has no VFs | make them at boot: write create_per_pf = { eth0 ="}},
		"the link is down":     {card: sriovtest.Card{Down: true}, want: []string{"fatal eth0: its link is down | ip link set eth0 up"}},
		"one group":            {card: sriovtest.Card{OneGroup: true}, want: []string{"fatal eth0: no VF can be used; for VF 0, its IOMMU group 101 has other devices (0000:01:10.1) | put the card into a slot"}},
		"vfio-pci not loaded":  {driver: true, want: []string{"the module vfio-pci is not loaded | modprobe vfio-pci"}},
		"VFs of a host driver": {driver: true, card: sriovtest.Card{HostDriver: "igbvf"}, want: []string{
			"eth0: its VFs are bound to the driver igbvf, from which each job takes them | jobs start sooner if, at boot, before the VFs are made: echo 0 > /sys/bus/pci/devices/0000:01:00.0/",
			"the module vfio-pci is not loaded | modprobe vfio-pci",
		}},
		"a driver nobody knows": {card: sriovtest.Card{Driver: "acme"}, want: []string{
			"eth0: what its driver acme can is not known | its VFs have no VLAN and no rates",
			"eth0: its driver acme does not check which addresses a VF sends from | only what",
		}},
		"one VF in use": {
			card: sriovtest.Card{HostDriver: "igbvf"}, files: map[string]string{vf0 + "net/v01:10.0": ""},
			want: []string{"eth0: VF 0: its network interface is in another network namespace | a container has it", "eth0: its VFs are bound to the driver igbvf"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.card.Driver == "" {
				tt.card.Driver = "igb"
			}
			fake := sriovtest.New(t, card(tt.card))
			edit(t, fake.Root, tt.files)
			if tt.driver {
				if err := fake.Unload("vfio-pci"); err != nil {
					t.Fatal(err)
				}
			}
			checkFindings(t, sriov.Explain(fake.Root), tt.want)
		})
	}
}

func checkFindings(t *testing.T, got []sriov.Finding, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("findings %+v, want %q", got, want)
	}
	for i, f := range got {
		text := f.Seen + " | " + f.Advice
		if f.PF != "" {
			text = f.PF + ": " + text
		}
		if f.Fatal {
			text = strings.Replace("fatal "+text, "fatal the", "fatal: the", 1)
		}
		if !strings.HasPrefix(text, want[i]) {
			t.Errorf("finding\n%s\nwant\n%s", text, want[i])
		}
	}
}

func BenchmarkPFs(b *testing.B) {
	var cards []sriovtest.Card
	for i := range 8 {
		cards = append(cards, sriovtest.Card{Name: fmt.Sprintf("eth%d", i), Driver: "mlx5_core", VFs: 128})
	}
	node := sriovtest.New(b, cards...).Open()
	for b.Loop() {
		if pfs, err := node.PFs(); err != nil || len(pfs) != 8 {
			b.Fatal(pfs, err)
		}
	}
}
