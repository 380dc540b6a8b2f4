package emulator

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/filetest"
)

func TestFind(t *testing.T) {
	root := t.TempDir()
	if path, err := Find(root, ""); err == nil || !strings.Contains(err.Error(), "no /usr/bin/qemu-system-x86_64 or /usr/libexec/qemu-kvm") {
		t.Errorf("in an empty machine: %q, %v", path, err)
	}
	filetest.Write(t, root+"/usr/libexec/qemu-kvm", "")
	if path, err := Find(root, ""); path != "/usr/libexec/qemu-kvm" || err != nil {
		t.Errorf("RHEL's: %q, %v", path, err)
	}
	if path, err := Find(root, "/opt/qemu"); err == nil || !strings.Contains(err.Error(), "/opt/qemu") {
		t.Errorf("the configured one, which is not there: %q, %v", path, err)
	}
}

func TestMissingIn(t *testing.T) {
	const debian = `Storage devices:
name "virtio-9p-pci", bus PCI, alias "virtio-9p"
name "virtio-blk-pci", bus PCI, alias "virtio-blk"

Misc devices:
name "ivshmem-doorbell", bus PCI, desc "Inter-VM shared memory"
name "ivshmem-plain", bus PCI, desc "Inter-VM shared memory"
name "nvdimm", desc "DIMM memory module"
`
	for list, want := range map[string]Missing{
		debian: {}, "": {true, true, true},
		strings.ReplaceAll(debian, "ivshmem-plain", "ivshmem"):         {IVShmem: true},
		strings.ReplaceAll(debian, `"nvdimm"`, `"pc-dimm"`):            {NVDIMM: true},
		strings.ReplaceAll(debian, `"virtio-9p-pci"`, `"virtio-9p-x"`): {NineP: true},
	} {
		if got := MissingIn(list); got != want {
			t.Errorf("missing %+v, want %+v, in:\n%s", got, want, list)
		}
	}
}

// emulates is an emulator that knows the named devices and counts how often it was asked.
func emulates(t *testing.T, path string, devices ...string) {
	t.Helper()
	list := ""
	for _, d := range devices {
		list += `name "` + d + `", bus PCI\n`
	}
	filetest.Write(t, path, "#!/bin/sh\n[ \"$*\" = '-machine none -device help' ] || exit 3\necho >> "+filepath.Dir(path)+"/asked\nprintf '"+list+"'\n")
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestCache(t *testing.T) {
	dir := filetest.PassableDir(t)
	if err := os.Chmod(dir, 0o777); err != nil { // for the count: nobody asks
		t.Fatal(err)
	}
	path, cache := filepath.Join(dir, "qemu"), Cache(filepath.Join(dir, "state", "emulator"))
	check := func(what string, want Missing, asked int) {
		t.Helper()
		got, err := cache.Ask(t.Context(), path)
		count, _ := os.ReadFile(filepath.Join(dir, "asked"))
		if got != want || err != nil || len(count) != asked {
			t.Errorf("%s: %+v, %v, asked %d times; want %+v and %d", what, got, err, len(count), want, asked)
		}
	}
	emulates(t, path, "virtio-9p-pci", "nvdimm")
	check("first", Missing{IVShmem: true}, 1)
	check("again", Missing{IVShmem: true}, 1)
	emulates(t, path, "virtio-9p-pci", "nvdimm", "ivshmem-plain")
	check("another", Missing{}, 2)
	filetest.Write(t, string(cache), "{")
	check("a broken file", Missing{}, 3)
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho no >&2; exit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := cache.Ask(t.Context(), path); err == nil || !strings.Contains(err.Error(), "exit status 1: no") {
		t.Errorf("an emulator that fails: %v", err)
	}
}

// Agents of several jobs ask at the same time on a new node.
func TestAgentsAskAtOnce(t *testing.T) {
	dir := filetest.PassableDir(t)
	path, cache := filepath.Join(dir, "qemu"), Cache(filepath.Join(dir, "state", "emulator"))
	emulates(t, path, "ivshmem-plain", "nvdimm")
	var agents sync.WaitGroup
	for range 20 {
		agents.Go(func() {
			if got, err := cache.Ask(t.Context(), path); got != (Missing{NineP: true}) || err != nil {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	agents.Wait()
	if left, _ := filepath.Glob(string(cache) + ".*"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestSharedMemory(t *testing.T) {
	const auto, pci, nvdimm = config.IVShmemAuto, config.IVShmemPCI, config.IVShmemNVDIMM
	tests := map[string]struct {
		missing  Missing
		wish     config.IVShmemDevice
		uncached bool
		want     config.IVShmemDevice
		fails    string
	}{
		"QEMU has both":              {Missing{}, auto, false, pci, ""},
		"both, and KVM on AMD":       {Missing{}, auto, true, nvdimm, ""},
		"RHEL's QEMU":                {Missing{IVShmem: true}, auto, false, nvdimm, ""},
		"no NVDIMMs, and KVM on AMD": {Missing{NVDIMM: true}, auto, true, pci, ""},
		"neither":                    {Missing{IVShmem: true, NVDIMM: true}, auto, false, pci, "no IVShmem devices and no NVDIMMs"},
		"wished":                     {Missing{}, nvdimm, false, nvdimm, ""},
		"wished on AMD":              {Missing{}, pci, true, pci, ""},
		"wished, but not there":      {Missing{NVDIMM: true}, nvdimm, false, nvdimm, "no NVDIMMs, which this site wants"},
		"PCI wished, but not there":  {Missing{IVShmem: true}, pci, false, pci, "no IVShmem devices, which this site wants"},
	}
	for name, tt := range tests {
		got, err := tt.missing.SharedMemory(tt.wish, tt.uncached)
		if got != tt.want || (err != nil) != (tt.fails != "") || err != nil && !strings.HasPrefix(err.Error(), tt.fails) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

// What stands for RHEL's QEMU in the scenarios (SLURMV_EMULATOR) has the devices of RHEL's alone, however they are asked for.
func TestWhatStandsForRHELsQEMU(t *testing.T) {
	if _, err := os.Stat(places[0]); err != nil {
		t.Skipf("install QEMU: %v", err)
	}
	script, err := os.ReadFile("../../scripts/cluster.d/rhel-qemu")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(filetest.PassableDir(t), "qemu")
	if err := os.WriteFile(path, script, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := ask(t.Context(), path); got != (Missing{NineP: true, IVShmem: true}) || err != nil {
		t.Errorf("it says that it lacks %+v, %v", got, err)
	}
	for device, refused := range map[string]bool{
		"ivshmem-plain,memdev=m": true, `{"driver":"virtio-9p-pci","id":"fs0"}`: true, "sga": true,
		"virtio-blk-pci,drive=d": false, `{"driver":"virtio-net-pci","id":"net0"}`: false,
	} {
		out, err := exec.CommandContext(t.Context(), path, "-machine", "none", "-display", "none", "-device", device).CombinedOutput()
		if err == nil || strings.Contains(string(out), "is not a valid device model name") != refused {
			t.Errorf("%s: %v, %s", device, err, out)
		}
	}
}
