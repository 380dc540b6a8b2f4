package jobspec

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/config"
)

func TestGoodValues(t *testing.T) {
	long := strings.Repeat("x", config.MaxText-1)
	jobDir := Mount{Host: "/home/u/run", Guest: "/home/u/run"}
	tests := map[string]struct {
		option, value string
		want          func(*Spec)
	}{
		"one VM":                            {"vm-per-node", "1", func(s *Spec) { s.VMsPerNode = 1 }},
		"as many VMs as allowed":            {"vm-per-node", "8", func(s *Spec) { s.VMsPerNode = 8 }},
		"leading zeros are decimal":         {"vm-per-node", "008", func(s *Spec) { s.VMsPerNode = 8 }},
		"vCPUs":                             {"vcpu-per-vm", "4", func(s *Spec) { s.VCPUs = 4 }},
		"as many vCPUs as allowed":          {"vcpu-per-vm", "1024", func(s *Spec) { s.VCPUs = 1024 }},
		"memory in G":                       {"memory-per-vm", "8G", func(s *Spec) { s.MemoryMiB = 8192 }},
		"memory in MiB":                     {"memory-per-vm", "1500", func(s *Spec) { s.MemoryMiB = 1500 }},
		"the least memory":                  {"memory-per-vm", "64M", func(s *Spec) { s.MemoryMiB = 64 }},
		"the most memory":                   {"memory-per-vm", "4t", func(s *Spec) { s.MemoryMiB = 4 << 20 }},
		"a disk":                            {"disk-size", "20G", func(s *Spec) { s.DiskMiB = 20 << 10 }},
		"the disk of the image":             {"disk-size", "0", func(s *Spec) { s.DiskMiB = 0 }},
		"an image by name":                  {"vm-image", "debian12", func(s *Spec) { s.Image = "debian12" }},
		"an image by path":                  {"vm-image", "/i/x.qcow2", func(s *Spec) { s.Image = "/i/x.qcow2" }},
		"an image by relative path":         {"vm-image", "i/x.qcow2", func(s *Spec) { s.Image = "/home/u/run/i/x.qcow2" }},
		"an image in the working directory": {"vm-image", "./x", func(s *Spec) { s.Image = "/home/u/run/x" }},
		"an image in the directory above":   {"vm-image", "../x", func(s *Spec) { s.Image = "/home/u/x" }},
		"an image path is cleaned":          {"vm-image", "/i//a/../x", func(s *Spec) { s.Image = "/i/x" }},
		"an image with odd characters":      {"vm-image", "/i/a b,c:d$(e)'f\"<é>", func(s *Spec) { s.Image = "/i/a b,c:d$(e)'f\"<é>" }},
		"the longest image path":            {"vm-image", "/" + long, func(s *Spec) { s.Image = "/" + long }},
		"an image for each VM":              {"vm-image-mode", "copy", func(s *Spec) { s.ImageMode = config.ImageCopy }},
		"an image that boots by UEFI":       {"vm-firmware", "uefi", func(s *Spec) { s.Firmware = config.FirmwareUEFI }},
		"shared memory of default size":     {"ivshmem", "2", func(s *Spec) { s.IVShmem = IVShmem{2, 16} }},
		"shared memory of a size":           {"ivshmem", "1:1G", func(s *Spec) { s.IVShmem = IVShmem{1, 1024} }},
		"the least shared memory":           {"ivshmem", "1:1024K", func(s *Spec) { s.IVShmem = IVShmem{1, 1} }},
		"the most shared memory":            {"ivshmem", "4:16G", func(s *Spec) { s.IVShmem = IVShmem{4, 16 << 10} }},
		"the most shared devices":           {"ivshmem", "16:4G", func(s *Spec) { s.IVShmem = IVShmem{16, 4 << 10} }},
		"no shared memory":                  {"ivshmem", "0", func(s *Spec) { s.IVShmem = IVShmem{} }},
		"a network":                         {"vm-network", "campus", func(s *Spec) { s.Network = "campus" }},
		"no mount":                          {"vm-mount", "none", func(s *Spec) { s.Mounts = nil }},
		"a mount beside the working directory": {"vm-mount", "/data", func(s *Spec) {
			s.Mounts = []Mount{{Host: "/data", Guest: "/data"}, jobDir}
		}},
		"a mount instead of the working directory": {"vm-mount", "none,/data", func(s *Spec) {
			s.Mounts = []Mount{{Host: "/data", Guest: "/data"}}
		}},
		"a read-only mount": {"vm-mount", "/data:ro", func(s *Spec) {
			s.Mounts = []Mount{{"/data", "/data", true}, jobDir}
		}},
		"a mount at another path, read-only": {"vm-mount", "/data:/mnt:ro", func(s *Spec) {
			s.Mounts = []Mount{jobDir, {"/data", "/mnt", true}}
		}},
		"mounts are ordered by guest path": {"vm-mount", "/b:/srv/x/y,/a:/srv/x,none", func(s *Spec) {
			s.Mounts = []Mount{{Host: "/a", Guest: "/srv/x"}, {Host: "/b", Guest: "/srv/x/y"}}
		}},
		"a mount above the working directory covers it": {"vm-mount", "/home/u", func(s *Spec) {
			s.Mounts = []Mount{{Host: "/home/u", Guest: "/home/u"}}
		}},
		"a mount over the working directory covers it": {"vm-mount", "/scratch/u:/home/u/run", func(s *Spec) {
			s.Mounts = []Mount{{Host: "/scratch/u", Guest: "/home/u/run"}}
		}},
		"a mount beside it of a similar name does not": {"vm-mount", "/home/u/ru", func(s *Spec) {
			s.Mounts = []Mount{{Host: "/home/u/ru", Guest: "/home/u/ru"}, jobDir}
		}},
		"a mount path is cleaned": {"vm-mount", "/data//x/:/mnt/", func(s *Spec) {
			s.Mounts = []Mount{jobDir, {Host: "/data/x", Guest: "/mnt"}}
		}},
		"the host's root elsewhere":    {"vm-mount", "/:/host:ro,none", func(s *Spec) { s.Mounts = []Mount{{"/", "/host", true}} }},
		"a mount below /usr/local":     {"vm-mount", "/usr/local/apps,none", func(s *Spec) { s.Mounts = []Mount{{Host: "/usr/local/apps", Guest: "/usr/local/apps"}} }},
		"a mount below /var":           {"vm-mount", "/var/data,none", func(s *Spec) { s.Mounts = []Mount{{Host: "/var/data", Guest: "/var/data"}} }},
		"a guest path like a reserved": {"vm-mount", "/x:/library,none", func(s *Spec) { s.Mounts = []Mount{{Host: "/x", Guest: "/library"}} }},
		"user data":                    {"vm-user-data", "cloud.yaml", func(s *Spec) { s.UserData = "/home/u/run/cloud.yaml" }},
		"user data by absolute path":   {"vm-user-data", "/etc/cloud.yaml", func(s *Spec) { s.UserData = "/etc/cloud.yaml" }},
		"a time to be ready":           {"vm-ready-timeout", "90", func(s *Spec) { s.ReadyTimeout = 90 * time.Second }},
		"the longest time to be ready": {"vm-ready-timeout", "3600", func(s *Spec) { s.ReadyTimeout = time.Hour }},
		"huge pages":                   {"vm-hugepages", "1G", func(s *Spec) { s.HugePages = config.HugePages1G }},
		"no huge pages":                {"vm-hugepages", "no", func(s *Spec) { s.HugePages = config.HugePagesNo }},
		"huge pages if there are any":  {"vm-hugepages", "auto", func(s *Spec) { s.HugePages = "" }},
		"no tags":                      {"vm-fabric", "off", func(s *Spec) { s.Fabric = "off" }},
		"VNIs and classes":             {"vm-fabric", "best-effort,low-latency,vni:2", func(s *Spec) { s.Fabric = "vni:2,low-latency,best-effort" }},
		"from a template":              {"vm-start", "warm", func(s *Spec) { s.Start = config.StartWarm }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			want := plain()
			tt.want(&want)
			values := map[string]string{"vm-per-node": "2", tt.option: tt.value}
			got, err := ParseIn("/home/u/run", values, noEnv, site())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Spec differs (-want +got):\n%s", diff)
			}
			checkRoundTrip(t, got, site())
		})
	}
}

func checkRoundTrip(t *testing.T, spec Spec, cfg config.Config) {
	t.Helper()
	if err := spec.Validate(cfg); err != nil {
		t.Errorf("the node refuses what was parsed: %v", err)
	}
	back, err := Decode(spec.Encode())
	if err != nil {
		t.Fatalf("Decode of %s: %v", spec.Encode(), err)
	}
	if diff := cmp.Diff(spec, back); diff != "" {
		t.Errorf("the Spec changed on its way (-sent +received):\n%s", diff)
	}
}

func TestBadValues(t *testing.T) {
	tests := map[string]struct{ option, value, want string }{
		"no VMs":                        {"vm-per-node", "0", "0 is not allowed; use 1 to 8"},
		"too many VMs":                  {"vm-per-node", "9", "9 is not allowed; use 1 to 8"},
		"VMs below zero":                {"vm-per-node", "-1", "-1 is not allowed; use a whole number, 1 to 8"},
		"VMs with a plus":               {"vm-per-node", "+1", "+1 is not allowed; use a whole number"},
		"a fraction of VMs":             {"vm-per-node", "1.5", "1.5 is not allowed; use a whole number"},
		"VMs in hexadecimal":            {"vm-per-node", "0x2", "0x2 is not allowed; use a whole number"},
		"VMs with a space":              {"vm-per-node", "2 ", "2  is not allowed; use a whole number"},
		"VMs in other digits":           {"vm-per-node", "٢", "٢ is not allowed; use a whole number"},
		"VMs beyond an int":             {"vm-per-node", "99999999999999999999", "99999999999999999999 is not allowed"},
		"VMs without number":            {"vm-per-node", "", "has no value; write --vm-per-node=N"},
		"no vCPUs":                      {"vcpu-per-vm", "0", "0 is not allowed; use 1 to 1024"},
		"too many vCPUs":                {"vcpu-per-vm", "1025", "1025 is not allowed; use 1 to 1024"},
		"vCPUs as text":                 {"vcpu-per-vm", "all", "all is not allowed; use a whole number, 1 to 1024"},
		"memory in an unknown unit":     {"memory-per-vm", "8Q", "8Q is not a size; use a number and K, M, G or T, such as 8G"},
		"no memory":                     {"memory-per-vm", "0", "0 is not allowed; use 64M to 4T"},
		"too little memory":             {"memory-per-vm", "63M", "63M is not allowed; use 64M to 4T"},
		"too much memory":               {"memory-per-vm", "5T", "5T is not allowed; use 64M to 4T"},
		"a fraction of memory":          {"memory-per-vm", "1.5G", "1.5G is not a size"},
		"memory beyond counting":        {"memory-per-vm", "99999999999999999999T", "is too large a size"},
		"a disk below zero":             {"disk-size", "-1G", "-1G is not a size"},
		"a disk too large":              {"disk-size", "5T", "5T is not allowed; use 0 to 4T"},
		"a disk of part of a MiB":       {"disk-size", "1K", "1K is not a whole number of MiB"},
		"an image not in the catalogue": {"vm-image", "rocky10", "rocky10 is not in the site's catalogue (debian12, rocky9); for a file write its path, such as ./rocky10"},
		"an image in a home directory":  {"vm-image", "~/mine.qcow2", "~/mine.qcow2 begins with ~, which no shell has replaced; write $HOME/mine.qcow2 on the command line"},
		"an image with an escape":       {"vm-image", "/i/\x1b[2J", `"/i/\x1b[2J" has a control or invisible character`},
		"an image with a newline":       {"vm-image", "/i/a\nb", "has a control or invisible character"},
		"an image with a null byte":     {"vm-image", "/i/a\x00", "has a control or invisible character"},
		"an image written backwards":    {"vm-image", "/i/\u202ecod.exe", "has a control or invisible character"},
		"an image not UTF-8":            {"vm-image", "/i/\xff", "is not UTF-8 text"},
		"an image path too long":        {"vm-image", "/" + strings.Repeat("x", config.MaxText), "is 4096 bytes long; at most 4095 are allowed"},
		"too long once made absolute":   {"vm-image", "./" + strings.Repeat("x", config.MaxText-5), "bytes long; at most 4095 are allowed"},
		"an image mode not there":       {"vm-image-mode", "snapshot", "snapshot is not a mode; use cache, direct or copy"},
		"firmware that there is not":    {"vm-firmware", "efi", "efi is not allowed; use auto, bios or uefi"},
		"too many devices":              {"ivshmem", "17", "17 is not allowed; use 0 to 16"},
		"too much shared memory in all": {"ivshmem", "5:16G", "5 devices of 16G are 80G; a job may have 64G on each node"},
		"devices as text":               {"ivshmem", "two", "two is not allowed; use a whole number, 0 to 16"},
		"devices without number":        {"ivshmem", ":16M", `"" is not allowed`},
		"shared memory not a power":     {"ivshmem", "1:24M", "24M is not a power of two; use 16M or 32M"},
		"shared memory of nothing":      {"ivshmem", "1:0", "0 is not allowed; use 1M to 16G"},
		"shared memory too large":       {"ivshmem", "1:32G", "32G is not allowed; use 1M to 16G"},
		"shared memory without size":    {"ivshmem", "1:", `"" is not a size`},
		"shared memory with two sizes":  {"ivshmem", "1:16M:16M", "16M:16M is not a size"},
		"an unknown network":            {"vm-network", "lan", "lan is not a network of this site; use one of campus, default"},
		"a relative mount":              {"vm-mount", "data", "data is not an absolute path without ..; use HOST[:GUEST][:ro]"},
		"a relative guest path":         {"vm-mount", "/data:data", "data is not an absolute path without .."},
		"a mount going up":              {"vm-mount", "/data/../etc", "/data/../etc is not an absolute path without .."},
		"a guest path going up":         {"vm-mount", "/data:/mnt/..", "/mnt/.. is not an absolute path without .."},
		"a mount of nothing":            {"vm-mount", "/data,", `"" is not an absolute path`},
		"a mount with a wrong word":     {"vm-mount", "/data:/mnt:rw", "/data:/mnt:rw has too many parts"},
		"two mounts at one place":       {"vm-mount", "/a:/mnt,/b:/mnt/", "/a and /b are both to be /mnt in the VMs; give them different guest paths"},
		"too many mounts":               {"vm-mount", "/a,/b,/c", "4 directories are too many; at most 3, the working directory included, are allowed"},
		"a mount over the guest's root": {"vm-mount", "/data:/", "/ cannot be mounted over, a VM needs its own; use another guest path, as in /data:/mnt"},
		"a mount over /proc":            {"vm-mount", "/proc", "/proc cannot be mounted over"},
		"a mount below /sys":            {"vm-mount", "/x:/sys/fs", "/sys/fs cannot be mounted over"},
		"a mount below /dev":            {"vm-mount", "/dev/shm", "/dev/shm cannot be mounted over"},
		"a mount below /run":            {"vm-mount", "/run/user/1", "/run/user/1 cannot be mounted over"},
		"a mount below /var/run":        {"vm-mount", "/x:/var/run/x", "/var/run/x cannot be mounted over"},
		"a mount over /etc":             {"vm-mount", "/x:/etc", "/etc cannot be mounted over"},
		"a mount over /usr":             {"vm-mount", "/usr:ro", "/usr cannot be mounted over"},
		"a mount over /usr/local":       {"vm-mount", "/usr/local:ro", "/usr/local cannot be mounted over"},
		"a mount below /bin":            {"vm-mount", "/x:/bin/x", "/bin/x cannot be mounted over"},
		"a mount over /sbin":            {"vm-mount", "/x:/sbin", "/sbin cannot be mounted over"},
		"a mount over /lib":             {"vm-mount", "/x:/lib", "/lib cannot be mounted over"},
		"a mount over /lib64":           {"vm-mount", "/x:/lib64", "/lib64 cannot be mounted over"},
		"a mount over /boot":            {"vm-mount", "/x:/boot", "/boot cannot be mounted over"},
		"a mount over /var":             {"vm-mount", "/x:/var", "/var cannot be mounted over"},
		"user data with a tab":          {"vm-user-data", "a\tb", "has a control or invisible character"},
		"user data too long":            {"vm-user-data", strings.Repeat("x", config.MaxText), "bytes long; at most 4095 are allowed"},
		"no time to be ready":           {"vm-ready-timeout", "0", "0 is not allowed; use 1 to 3600"},
		"too long to be ready":          {"vm-ready-timeout", "3601", "3601 is not allowed; use 1 to 3600"},
		"huge pages of no size":         {"vm-hugepages", "4M", "4M is not allowed; use auto, no, 2M or 1G"},
		"no way to start":               {"vm-start", "hot", "hot is not allowed; use auto, warm or cold"},
		"too many VNIs":                 {"vm-fabric", "vni:42", "vni:42 is too many; a job has at most 4 VNIs"},
		"a class that is not allowed":   {"vm-fabric", "bulk", "jobs of this site may not use the traffic class bulk; use low-latency or best-effort"},
		"a tag that VFs bring":          {"vm-fabric", "vlan:1", "vlan:1 is not allowed; use off, vni:N with a number of VNIs, or traffic classes"},
		"a time with a unit":            {"vm-ready-timeout", "5m", "5m is not allowed; use a whole number, 1 to 3600"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			values := map[string]string{"vm-per-node": "2", tt.option: tt.value}
			spec, err := ParseIn("/home/u/run", values, noEnv, site())
			var fault *valueError
			if !errors.As(err, &fault) {
				t.Fatalf("--%s=%q gives %+v, %v; want a ValueError", tt.option, tt.value, spec, err)
			}
			if fault.Source != "--"+tt.option || !strings.Contains(fault.Reason, tt.want) {
				t.Errorf("error = %v, want --%s: … %s …", err, tt.option, tt.want)
			}
		})
	}
}

// Every option has rows above, and needs a value.
func TestEveryOptionRefusesAnEmptyValue(t *testing.T) {
	for _, option := range Options {
		values := map[string]string{"vm-per-node": "2", option.Name: ""}
		_, err := ParseIn("/home/u/run", values, noEnv, site())
		want := "--" + option.Name + ": has no value; write --" + option.Name + "=" + option.Arg
		if err == nil || err.Error() != want {
			t.Errorf("error = %v, want %s", err, want)
		}
	}
}

func TestHugePagesFitTheSiteAndTheMemory(t *testing.T) {
	tests := map[string]struct {
		limit  []config.HugePages
		values map[string]string
		want   string
	}{
		"a whole number of pages":       {site().Limits.HugePages, map[string]string{"vm-hugepages": "1G", "memory-per-vm": "2G"}, ""},
		"a page and a half":             {site().Limits.HugePages, map[string]string{"vm-hugepages": "1G", "memory-per-vm": "1536M"}, "--vm-hugepages: 1536M of memory is no whole number of pages of 1G; use --memory-per-vm=2G or --vm-hugepages=no"},
		"forbidden":                     {nil, map[string]string{"vm-hugepages": "2M"}, "--vm-hugepages: 2M is not allowed at this site (limits.hugepages); use no"},
		"one size is forbidden":         {[]config.HugePages{config.HugePages2M}, map[string]string{"vm-hugepages": "1G"}, "--vm-hugepages: 1G is not allowed at this site"},
		"the other size is not":         {[]config.HugePages{config.HugePages2M}, map[string]string{"vm-hugepages": "2M"}, ""},
		"none where they are forbidden": {nil, map[string]string{"vm-hugepages": "no"}, ""},
		"from a template":               {site().Limits.HugePages, map[string]string{"vm-hugepages": "2M", "vm-start": "warm"}, "--vm-start: warm is not possible: the VMs' memory has huge pages (--vm-hugepages)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := site()
			cfg.Limits.HugePages = tt.limit
			tt.values["vm-per-node"] = "2"
			_, err := ParseIn("/home/u/run", tt.values, noEnv, cfg)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
		})
	}
}
