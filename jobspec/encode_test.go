package jobspec

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/config"
)

func TestEncodeIsStable(t *testing.T) {
	spec := plain()
	spec.SRIOV.VFs = []VF{{}, {10000, 40000, "ens1f0", NUMARequire, true}}
	spec.IVShmem = IVShmem{2, 16}
	spec.Mounts = append(spec.Mounts, Mount{"/<data>", "/mnt", true})
	spec.Nonce = "ABCDEFGHIJKLMNOPQRSTUVWX27"
	const want = `{"vms_per_node":2,"vcpus":1,"memory_mib":1024,"disk_mib":0,"image":"rocky9","image_mode":"cache",` +
		`"sriov":{"vfs":[{},{"min":10000,"max":40000,"pf":"ens1f0","numa":"require","spread":true}]},"ivshmem":{"devices":2,"size_mib":16},"network":"default",` +
		`"mounts":[{"host":"/home/u/run","guest":"/home/u/run"},{"host":"/<data>","guest":"/mnt","ro":true}],` +
		`"ready_timeout_ns":300000000000,"start":"auto","work_dir":"/home/u/run","nonce":"ABCDEFGHIJKLMNOPQRSTUVWX27"}`
	if diff := cmp.Diff(want, spec.Encode()); diff != "" {
		t.Errorf("a change here breaks jobs between two versions (-want +got):\n%s", diff)
	}
	checkRoundTrip(t, spec, site())
}

func TestDecodeRefuses(t *testing.T) {
	good := plain().Encode()
	replaced := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("%s is not in %s", old, good)
		}
		return strings.Replace(good, old, new, 1)
	}
	tests := map[string]struct{ text, want string }{
		"nothing":                  {"", "EOF"},
		"another type":             {"[]", "cannot unmarshal"},
		"no object":                {"null", "not as Slurm-V writes it"},
		"an empty object":          {"{}", "not as Slurm-V writes it"},
		"an unknown key":           {replaced(`{`, `{"root":true,`), `unknown field "root"`},
		"a repeated key":           {replaced(`{`, `{"vcpus":4,`), "not as Slurm-V writes it"},
		"a key in another case":    {replaced(`"vcpus"`, `"VCPUs"`), "not as Slurm-V writes it"},
		"more behind it":           {good + "{}", "not as Slurm-V writes it"},
		"a newline behind it":      {good + "\n", "not as Slurm-V writes it"},
		"spaces":                   {replaced(`:2,`, `: 2,`), "not as Slurm-V writes it"},
		"a fraction":               {replaced(`:2,`, `:2.5,`), "cannot unmarshal number"},
		"a number beyond any":      {replaced(`:2,`, `:99999999999999999999,`), "cannot unmarshal number"},
		"a missing key":            {replaced(`"disk_mib":0,`, ``), "not as Slurm-V writes it"},
		"bytes that are not UTF-8": {replaced(`rocky9`, "rocky\xff"), "not as Slurm-V writes it"},
		"more VMs than multiply":   {replaced(`:2,`, `:9000000000,`), "9000000000 VMs are out of range"},
		"vCPUs below zero":         {replaced(`"vcpus":1`, `"vcpus":-1`), "-1 vCPUs are out of range"},
		"memory below zero":        {replaced(`1024`, `-1024`), "-1024 MiB of memory are out of range"},
		"a disk beyond any":        {replaced(`"disk_mib":0`, `"disk_mib":9223372036854775807`), "9223372036854775807 MiB of disk are out of range"},
		"an empty list of VFs":     {replaced(`"sriov":{}`, `"sriov":{"vfs":[]}`), "not as Slurm-V writes it"},
		"a number of VFs":          {replaced(`"sriov":{}`, `"sriov":{"vfs":2}`), "cannot unmarshal number"},
		"an unknown key of a VF":   {replaced(`"sriov":{}`, `"sriov":{"vfs":[{"trust":true}]}`), `unknown field "trust"`},
		"a rate below zero":        {replaced(`"sriov":{}`, `"sriov":{"vfs":[{"min":-1}]}`), "cannot unmarshal number"},
		"a rate that sums up past": {replaced(`"sriov":{}`, `"sriov":{"vfs":[{},{"min":10000001}]}`), "10000001 Mb/s of a VF are out of range"},
		"a cap beyond any":         {replaced(`"sriov":{}`, `"sriov":{"vfs":[{"max":4294967295}]}`), "4294967295 Mb/s of a VF are out of range"},
		"devices below zero":       {replaced(`"devices":0`, `"devices":-1`), "-1 devices are out of range"},
		"shared memory below zero": {replaced(`"size_mib":0`, `"size_mib":-1`), "-1 MiB of shared memory are out of range"},
		"a nonce of odd letters":   {replaced(`"work_dir":"/home/u/run"`, `"work_dir":"/home/u/run","nonce":"ab"`), "the nonce is not one of Slurm-V's"},
		"a nonce without end":      {replaced(`"work_dir":"/home/u/run"`, `"work_dir":"/home/u/run","nonce":"`+strings.Repeat("A", 65)+`"`), "the nonce is not one of Slurm-V's"},
		"an empty nonce":           {replaced(`"work_dir":"/home/u/run"`, `"work_dir":"/home/u/run","nonce":""`), "not as Slurm-V writes it"},
		"too long a text":          {`{"image":"` + strings.Repeat("x", maxEncoded) + `"}`, "bytes long; at most 98304 are allowed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			spec, err := Decode(tt.text)
			if err == nil || !strings.HasPrefix(err.Error(), "read VM request: ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Decode = %+v, %v; want an error with %q", spec, err, tt.want)
			}
		})
	}
}

// The longest values of all options together still make a text that Decode accepts.
func TestTheLongestSpecCanTravel(t *testing.T) {
	long := func(prefix string, n int) string { return prefix + strings.Repeat(`"`, n-len(prefix)) }
	values := map[string]string{
		"vm-per-node": "1", "vm-image": long("/", config.MaxText), "vm-user-data": long("/", config.MaxText),
		"vm-mount": long("/a", config.MaxText),
		"sriov":    "63:min=9999999,max=9999999,pf=enp225s0f1np10x,numa=require",
	}
	cfg := site()
	cfg.Limits.VFPerVM = 63 // the highest limit that a site can set
	spec, err := ParseIn(long("/b", config.MaxText), values, noEnv, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i := range spec.SRIOV.VFs {
		spec.SRIOV.VFs[i].Spread = true
		spec.SRIOV.VFs[i].PF = strings.Repeat("x", 12) + strconv.Itoa(100+i)
	}
	checkRoundTrip(t, spec, cfg)
}

// Whatever the user types, Parse either refuses it with one printable line, or makes a
// Spec that travels unchanged and that a node accepts.
func FuzzParse(f *testing.F) {
	f.Add("2", "4", "8G", "20G", "rocky9", "1:min=10g+2:max=5g", "2:32M", "campus", "/data:/mnt:ro,/x", "u.yaml", "60", "/home/u")
	f.Add("2", "", "", "0", "../i", `[{"min_tx_rate":1}]`, "0", "", "none,/a", "/u", "", "/")
	f.Add("1", "1", "1G", "0", "rocky9", "2:min=10g,max=40g,pf=ens1f0,numa=require,spread+1", "0", "default", "none", "u", "1", "/")
	f.Add("1", "\x00", "8Q", "1500K", "\u202e", "[null]", "1:24M", "x", "/a:/a:/a", "\xff", "-1", "rel")
	f.Fuzz(func(t *testing.T, vms, vcpus, memory, disk, image, sriov, ivshmem, network, mount, userData, timeout, dir string) {
		values := map[string]string{"vm-per-node": vms}
		for i, value := range []string{vcpus, memory, disk, image, sriov, ivshmem, network, mount, userData, timeout} {
			if value != "" { // "" stands for an option that is not given
				values[Options[i+1].Name] = value
			}
		}
		spec, err := ParseIn(dir, values, noEnv, site())
		if err != nil {
			if config.CheckText(err.Error()) != nil {
				t.Errorf("error is not one printable line: %q", err)
			}
			return
		}
		checkRoundTrip(t, spec, site())
	})
}

// Whatever arrives at a node, Decode either refuses it or reads all of it, and no
// computation with the result overflows.
func FuzzDecode(f *testing.F) {
	f.Add(plain().Encode())
	f.Add(strings.Replace(plain().Encode(), `"sriov":{}`, `"sriov":{"vfs":[{},{"min":10000,"numa":"any","spread":true}]}`, 1))
	f.Add(`{"vms_per_node":65536,"vcpus":65536}`)
	f.Add(`{}`)
	f.Fuzz(func(t *testing.T, text string) {
		spec, err := Decode(text)
		if err != nil {
			return
		}
		if spec.Encode() != text {
			t.Errorf("%s became %s", text, spec.Encode())
		}
		if r := spec.Resources(site()); r.CPUsPerNode < 0 || r.MemoryMiBPerNode < 0 || r.VFsPerNode < 0 || r.VFMbpsPerNode < 0 {
			t.Errorf("resources overflow: %+v", r)
		}
		if err := spec.Validate(site()); err == nil && spec.ReadyTimeout < time.Second {
			t.Errorf("Validate accepted a time of %s", spec.ReadyTimeout)
		}
	})
}
