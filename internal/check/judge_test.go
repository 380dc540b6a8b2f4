package check

import (
	"strings"
	"testing"
)

const ext4 = 0xef53

func TestJudgeSpace(t *testing.T) {
	const plenty = 100 << 30
	tests := map[string]struct {
		kind  int64
		free  uint64
		keeps bool
		want  Status
	}{
		"a disk with space":                     {ext4, plenty, true, OK},
		"a disk that is full":                   {ext4, 1 << 20, true, Warning},
		"a full disk matters little for /run":   {ext4, 1 << 20, false, OK},
		"memory for what must survive a reboot": {0x01021994, plenty, true, Warning},
		"memory for what must not":              {0x01021994, plenty, false, OK},
		"a file server":                         {0x6969, plenty, true, Error},
		"a file server for /run":                {0x6969, plenty, false, Error},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := judgeSpace("directory", "/d", tt.kind, tt.free, tt.keeps); got.Status != tt.want {
				t.Errorf("%+v, want %s", got, tt.want)
			}
		})
	}
}

func TestJudgeCache(t *testing.T) {
	const gib = 1 << 30
	tests := map[string]struct {
		disk, free, limit int64
		want              Status
	}{
		"a large disk":                  {100 * gib, 90 * gib, 0, OK},
		"a disk that is full":           {100 * gib, 6 * gib, 0, Warning},
		"a disk that has just enough":   {100 * gib, 7 * gib, 0, OK},
		"half of a tiny disk":           {3 * gib, 3 * gib, 0, Warning},
		"a limit that no image will do": {100 * gib, 90 * gib, gib, Warning},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := judgeCache("/d", tt.disk, tt.free, tt.limit); got.Status != tt.want {
				t.Errorf("%+v, want %s", got, tt.want)
			}
		})
	}
}

func TestLibraryVersion(t *testing.T) {
	tests := map[string]string{
		"libvirt.so.0.9000.0":   "9.0.0",
		"libvirt.so.0.10000.10": "10.0.10",
		"libvirt.so.0.11003.2":  "11.3.2",
		"libvirt.so.0":          "",
		"":                      "",
	}
	for file, want := range tests {
		t.Run(file, func(t *testing.T) {
			if got := libraryVersion(file); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

func TestQEMUAccount(t *testing.T) {
	tests := map[string]struct{ release, want string }{
		"Debian":     {"NAME=x\nID=debian\n", "libvirt-qemu"},
		"of Debian":  {"ID=ubuntu\nID_LIKE=debian\n", "libvirt-qemu"},
		"Rocky":      {"ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", "qemu"},
		"no release": {"", "qemu"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := &node{root: t.TempDir()}
			m.write(t, "etc/os-release", tt.release, 0o644)
			if got := qemuAccount(m.root); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestJudgeCloud(t *testing.T) {
	slurm := Cloud{CPUs: 16, MemoryMiB: 4000}
	tests := map[string]struct {
		nova   Cloud
		want   Status
		advice string
	}{
		"the same":    {slurm, OK, ""},
		"more CPUs":   {Cloud{CPUs: 256, MemoryMiB: 4000}, Warning, "set cpu_allocation_ratio=1.0 and reserved_host_cpus in nova.conf: "},
		"more memory": {Cloud{CPUs: 16, MemoryMiB: 6000}, Warning, "set ram_allocation_ratio=1.0 and reserved_host_memory_mb in nova.conf: "},
		"fewer CPUs":  {Cloud{CPUs: 8, MemoryMiB: 4000}, Warning, "lower CPUs or RealMemory"},
		"less memory": {Cloud{CPUs: 16, MemoryMiB: 3000}, Warning, "lower CPUs or RealMemory"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := judgeCloud(tt.nova, slurm); got.Status != tt.want || !strings.Contains(got.Advice, tt.advice) {
				t.Errorf("%+v, want %s, advice %q", got, tt.want, tt.advice)
			}
		})
	}
}
