package tags

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/internal/netlab"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vfpool/software"
)

func TestWhatOnlyJobsHave(t *testing.T) {
	vlan := fabric.Pool{Kind: fabric.VLAN, Tags: []fabric.Range{{First: 0, Last: 2999}}}
	pkey := fabric.Pool{Kind: fabric.PKey, Tags: []fabric.Range{{First: 0x1000, Last: 0x1fff}}}
	ours := device.Settings{PortGUID: fabric.PortGUID(7, 0, 0).String()}
	for name, tt := range map[string]struct {
		settings device.Settings
		pool     fabric.Pool
		want     string
	}{
		"a VLAN of the pool":            {device.Settings{VLAN: 2001}, vlan, "VLAN 2001"},
		"a VLAN of the site's":          {device.Settings{VLAN: 3001}, vlan, ""},
		"no VLAN":                       {device.Settings{}, vlan, ""},
		"a GUID of a job":               {ours, pkey, "the GUID 02:50:00:00:00:70:00:00"},
		"a GUID where jobs have none":   {ours, vlan, ""},
		"a GUID of the card":            {device.Settings{PortGUID: "b8:59:9f:03:00:c1:22:40"}, pkey, ""},
		"a VLAN of a pool of P_Keys":    {device.Settings{VLAN: 0x1001}, pkey, ""},
		"what a VF without a GUID says": {device.Settings{PortGUID: "ff:ff:ff:ff:ff:ff:ff:ff"}, pkey, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tagOf(tt.settings, []fabric.Pool{tt.pool}); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// The VF has no lease: somebody has removed it by hand.
func TestCleanClearsVFsWithoutALease(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("makes network namespaces: run as root")
	}
	lab, err := netlab.NewNode()
	if err != nil {
		t.Fatal(err)
	}
	defer lab.Close()
	if err := lab.Bridge("br0"); err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.Paths.State = t.TempDir()
	cfg.Fabric.VLAN.Pool = config.Tags{{First: 2000, Last: 2999}}
	cfg.VF.Software = map[string]config.SoftwarePF{"soft0": {Bridge: "br0", Rate: 100, VFs: 2, NUMA: -1}}
	soft, vf := software.Open(cfg.VF, true), device.VF{PF: "soft0", Kind: device.Software}
	err = lab.Do(func() error {
		return errors.Join(soft.Apply(t.Context(), vf, device.Settings{MAC: "06:00:00:00:00:07", VLAN: 2001, SpoofCheck: true}), soft.Attach(t.Context(), vf, owner.IDs{}))
	})
	if err != nil {
		t.Fatal(err)
	}
	clean := func(dryRun bool) (done []string) {
		err := lab.Do(func() (err error) {
			done, err = clearVFs(t.Context(), cfg, "n1", dryRun)
			return err
		})
		if err != nil {
			t.Error(err)
		}
		return done
	}
	if done := clean(true); !slices.Equal(done, []string{"would have cleared VF 0 of soft0, which had VLAN 2001"}) {
		t.Errorf("a dry run: %q", done)
	}
	if done := clean(false); !slices.Equal(done, []string{"cleared VF 0 of soft0, which had VLAN 2001"}) {
		t.Errorf("%q", done)
	}
	if done := clean(false); len(done) > 0 {
		t.Errorf("afterwards: %q", done)
	}
}
