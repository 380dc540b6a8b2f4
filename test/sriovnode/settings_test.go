//go:build sriov

package sriovnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/vfpool"
	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vfpool/sriov"
)

func TestInventory(t *testing.T) {
	pfs := nodesPFs(t)
	if len(pfs) != 2 {
		t.Fatalf("%d PFs", len(pfs))
	}
	groups := map[int]string{}
	for i, pf := range pfs {
		if pf.Name != fmt.Sprintf("eth%d", i) || pf.PCI != fmt.Sprintf("0000:%02x:00.0", i+1) || pf.Driver != "igb" ||
			pf.LinkLayer != "ether" || pf.Speed != 1000 || !pf.Up || pf.TotalVFs != vfsPerPF || pf.Unusable.Seen != "" {
			t.Errorf("%+v", pf)
		}
		if len(pf.VFs) != vfsPerPF {
			t.Errorf("%s has %d VFs", pf.Name, len(pf.VFs))
		}
		for j, vf := range pf.VFs {
			if vf.Index != j || vf.PF != pf.Name || vf.Unusable.Seen != "" || vf.Group < 0 || groups[vf.Group] != "" {
				t.Errorf("%+v, and the group is also %q's", vf, groups[vf.Group])
			}
			groups[vf.Group] = vf.PCI
		}
	}
	// All can be used; it is only that those of eth0 have a driver to be taken from.
	if f := sriov.Explain("/"); len(f) != 1 || f[0].PF != "eth0" || f[0].Fatal || !strings.Contains(f[0].Seen, "igbvf") {
		t.Errorf("findings: %+v", f)
	}
}

// told returns what the PF has told a VF, as ip(8) reads it.
func told(t *testing.T, vf device.VF) map[string]any {
	t.Helper()
	var links []struct {
		VFs []map[string]any `json:"vfinfo_list"`
	}
	if err := json.Unmarshal([]byte(run(t, "ip", "-json", "link", "show", vf.PF)), &links); err != nil {
		t.Fatal(err)
	}
	return links[0].VFs[vf.Index]
}

func driverOf(vf device.VF) string {
	target, _ := os.Readlink(filepath.Join("/sys/bus/pci/devices", vf.PCI, "driver"))
	return filepath.Base(target)
}

func TestAVFIsSetAndHandedOver(t *testing.T) {
	l := newLab(t)
	l.keeps(t)
	for _, g := range l.acquire(t, claim(7, 100, jobspec.VF{PF: "eth0", MaxMbps: 300}, jobspec.VF{PF: "eth1", MaxMbps: 300})) {
		checkSet(t, g)
		checkHandedOver(t, g.VF)
	}
}

func checkSet(t *testing.T, g vfpool.Grant) {
	t.Helper()
	text := fmt.Sprint(told(t, g.VF))
	for _, want := range []string{"address:" + g.Settings.MAC, "vlan:100", "max_tx:300", "min_tx:0", "spoofchk:true", "trust:false", "link_state:auto"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %s", want, text)
		}
	}
}

func checkHandedOver(t *testing.T, vf device.VF) {
	t.Helper()
	if driver := driverOf(vf); driver != "vfio-pci" {
		t.Errorf("the driver is %q", driver)
	}
	group, err := os.Stat(fmt.Sprintf("/dev/vfio/%d", vf.Group))
	if err != nil {
		t.Fatal(err)
	}
	if stat := group.Sys().(*syscall.Stat_t); stat.Uid != account || stat.Gid != account || group.Mode().Perm() != 0o600 {
		t.Errorf("%s is %d:%d %v", group.Name(), stat.Uid, stat.Gid, group.Mode())
	}
}

// The driver of a made-up card can refuse anything; that of this one refuses minima.
func TestAMinimumIsRefused(t *testing.T) {
	l := newLab(t)
	l.keeps(t)
	_, err := l.pool(t).Acquire(t.Context(), claim(7, 100, jobspec.VF{MinMbps: 100}))
	if !errors.Is(err, vfpool.ErrNoFit) || !strings.Contains(err.Error(), "eth0 has a driver that cannot reserve bandwidth") {
		t.Errorf("error = %v", err)
	}

	vf := nodesPFs(t)[0].VFs[0]
	var unsupported *sriov.UnsupportedError
	err = sriov.Open("/", sriov.Netlink()).Apply(t.Context(), vf, device.Settings{MinRate: 100})
	if !errors.As(err, &unsupported) || unsupported.Attribute != "min_tx_rate" || unsupported.Driver != "igb" {
		t.Errorf("error = %v", err)
	}
}

func TestAMinimumIsCountedInSoftMode(t *testing.T) {
	l := newLab(t)
	l.keeps(t)
	cfg := l.config()
	cfg.VF.Mode = config.VFSoft
	soft, err := vfpool.Open(cfg, "n1")
	if err != nil {
		t.Fatal(err)
	}
	c := claim(7, 0, jobspec.VF{PF: "eth0", MinMbps: 600})
	t.Cleanup(func() { l.release(t, c.Job) })
	if _, err := soft.Acquire(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if _, err := soft.Acquire(t.Context(), claim(8, 0, jobspec.VF{PF: "eth0", MinMbps: 600})); !errors.Is(err, vfpool.ErrNoFit) {
		t.Errorf("a second minimum of 600 Mb/s on a line of 1000: %v", err)
	}
}

func TestAllVFsOfTheNode(t *testing.T) {
	l := newLab(t)
	l.keeps(t)
	if got := l.acquire(t, claim(7, 100, make([]jobspec.VF, 2*vfsPerPF)...)); len(got) != 2*vfsPerPF {
		t.Errorf("got %d", len(got))
	}
	if _, err := l.pool(t).Acquire(t.Context(), claim(8, 100, jobspec.VF{})); !errors.Is(err, vfpool.ErrNoFit) {
		t.Errorf("one more: %v", err)
	}
}
