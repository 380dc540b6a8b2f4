package vfpool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	tests := map[string]struct {
		devices map[string]string // sriov_totalvfs by PCI address, "" for no such file
		vfs     int
		want    string // DIR stands for the directory of devices
	}{
		"a job without VFs":         {vfs: 0},
		"a node without PCI":        {vfs: 1, want: "not available on node n1: no SR-IOV physical function (no device under DIR has sriov_totalvfs above 0)"},
		"a node without SR-IOV":     {vfs: 1, devices: map[string]string{"0000:00:02.0": ""}, want: "no SR-IOV physical function"},
		"a card with it turned off": {vfs: 1, devices: map[string]string{"0000:00:02.0": "0\n"}, want: "no SR-IOV physical function"},
		"a node with two cards": {
			vfs:     1,
			devices: map[string]string{"0000:01:00.0": "7\n", "0000:00:02.0": "", "0000:02:00.0": "8\n"},
			want:    "not available on node n1: VFs (--sriov): this release of Slurm-V does not lease VFs yet, though the node has SR-IOV physical functions: 0000:01:00.0, 0000:02:00.0",
		},
		"a file that makes no sense": {vfs: 1, devices: map[string]string{"0000:01:00.0": "many\n"}, want: `not available on node n1: VFs (--sriov): DIR/0000:01:00.0/sriov_totalvfs: strconv.Atoi: parsing "many"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			sysfs := t.TempDir()
			for address, total := range tt.devices {
				dir := filepath.Join(devices(sysfs), address)
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				if total == "" {
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, "sriov_totalvfs"), []byte(total), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			err := Check(sysfs, "n1", tt.vfs)
			want := strings.ReplaceAll(tt.want, "DIR", devices(sysfs))
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("error\n%v\nwant\n%s", err, want)
			}
		})
	}
}
