package cxi

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/cxi/cxitest"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	text, other := filepath.Join(dir, "text.so"), filepath.Join(dir, "other.so")
	if err := os.WriteFile(text, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	cc := exec.Command("cc", "-shared", "-o", other, "-x", "c", "-")
	cc.Stdin = strings.NewReader("int cxil_get_device_list(void **l) { *l = 0; return 0; }\n")
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	tests := map[string]struct{ lib, want string }{
		"a library that is not there": {"libnosuchcxi.so.1", "load libnosuchcxi.so.1, which makes services on Slingshot cards: libnosuchcxi.so.1: cannot open shared object file"},
		"no library":                  {text, "text.so, which makes services on Slingshot cards: " + text + ": "},
		"another library":             {other, "it has no function cxil_free_device_list"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Open(tt.lib)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasSuffix(err.Error(), "or name its file as libcxi in [fabric.vni] of slurmv.toml") {
				t.Errorf("error = %v\n want %s", err, tt.want)
			}
		})
	}
}

func TestALibraryWithoutUse(t *testing.T) {
	path, err := cxitest.Build(t.TempDir(), "-DWITHOUT_USE")
	if err != nil {
		t.Fatal(err)
	}
	lib, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer lib.Close()
	if _, err := lib.Use(devices(t, lib)[0], 1); err == nil || err.Error() != "read the use of CXI service 1 of cxi0: function not implemented" {
		t.Errorf("use: %v", err)
	}
	seed(t, lib, 0, Service{System: true, VNIs: []fabric.Tag{30}, Limits: &Limits{TXQ: {100, 200}}})
	if m := made(t, lib, job4217)[0]; m.Limits[TXQ].Max != 924 {
		t.Errorf("maximum of TXQs = %d", m.Limits[TXQ].Max)
	}
}

func TestDevices(t *testing.T) {
	lib, fake := aNode(t, "CARDS=2", "VFS=3", "TXQS=77")
	has := cassini
	has[TXQ] = 77
	want := []Device{{0, "cxi0", has}, {1, "cxi1", has}}
	if diff := cmp.Diff(want, devices(t, lib)); diff != "" {
		t.Errorf("cards without VFs differ (-want +got):\n%s", diff)
	}
	fake.Set("CARDS=0", "VFS=0")
	if got := devices(t, lib); len(got) != 0 {
		t.Errorf("a node without cards has %v", got)
	}
	fake.Set("CARDS=1", "GARBLED=1")
	if _, err := lib.Devices(); err == nil || !strings.Contains(err.Error(), `libcxi calls card 0 "c0", not "cxi0"`) {
		t.Errorf("a libcxi with other layouts: %v", err)
	}
}

// TestAServiceComesBackAsItWasMade is about the layouts, which the fake has written down
// for itself.
func TestAServiceComesBackAsItWasMade(t *testing.T) {
	lib, _ := aNode(t, "CARDS=1", "FIRST_IDS=300")
	tests := map[string]Service{
		"all fields": {
			System: true, Members: []Member{{UID, 4294967294}, {GID, 12}}, VNIs: []fabric.Tag{65535, 2, 3, 4},
			Classes: []fabric.Class{fabric.Dedicated, fabric.Bulk},
			Limits:  &Limits{{1, 2}, {3, 4}, {5, 6}, {7, 8}, {9, 10}, {11, 12}, {13, 13}, {15, 16}},
		},
		"other classes":                    {VNIs: []fabric.Tag{5}, Classes: []fabric.Class{fabric.LowLatency, fabric.BestEffort}},
		"a namespace":                      {VNIs: []fabric.Tag{6}, Members: []Member{{NetNS, 9}}},
		"no restriction but that of VNIs":  {VNIs: []fabric.Tag{7}},
		"no restriction, so it is not on ": {},
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			want.ID = seed(t, lib, 0, want)
			want.Enabled = want.VNIs != nil
			all := listed(t, lib)
			if diff := cmp.Diff(want, all[len(all)-1].Service); diff != "" {
				t.Errorf("service differs (-want +got):\n%s", diff)
			}
		})
	}
}
