package fabric

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/config"
)

// site has pools of all kinds, and VNIs of their own for two partitions.
func site(t testing.TB, text string) config.Fabric {
	t.Helper()
	cfg, err := config.Parse("slurmv.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Fabric
}

const allKinds = `[fabric]
vlan.pool = "2000-2999"
pkey.pool = "0x1000-0x1fff"
vni.pool = "1024-2047,4096-8191"
vni.per_job = 2
[fabric.pool.gpus]
kind = "vni"
pool = "40000-49999"
partitions = ["gpu", "debug"]
`

var wishes = map[string]struct {
	wish Wish
	text string
}{
	"everything": {
		Wish{Tags: map[Kind]int{VLAN: 1, PKey: 1, VNI: 4}, Classes: Classes, VMs: 1024, VFs: 63},
		"vlan:1,pkey:1,vni:4,tc:dedicated+low-latency+bulk+best-effort,vms:1024,vfs:63",
	},
	"as many VNIs as the pool says": {Wish{Tags: map[Kind]int{VNI: PerPool}}, "vni"},
	"no VNIs":                       {Wish{Tags: map[Kind]int{VNI: 0}}, "vni:0"},
	"a VLAN for VFs":                {Wish{Tags: map[Kind]int{VLAN: 1}, VMs: 2, VFs: 1}, "vlan:1,vms:2,vfs:1"},
	"a traffic class":               {Wish{Tags: map[Kind]int{VNI: 2}, Classes: []Class{LowLatency}}, "vni:2,tc:low-latency"},
	"no tags":                       {Wish{Off: true}, "off"},
}

func TestWishesAndTheirTexts(t *testing.T) {
	for name, tt := range wishes {
		t.Run(name, func(t *testing.T) {
			if got := tt.wish.String(); got != tt.text || len(got) > maxWish {
				t.Errorf("the text is %q, want %q", got, tt.text)
			}
			got, err := ParseWish(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.wish, got); diff != "" {
				t.Errorf("the wish differs (-want +got):\n%s", diff)
			}
		})
	}
	if text := (Wish{}).String(); text != "" || !(Wish{}).Empty() {
		t.Errorf("the wish of a job that wants nothing is %q", text)
	}
}

func TestParseWishRefuses(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"nothing":                    {"", `"": not an item of a wish`},
		"an unknown item":            {"vni:1,mtu:9000", "mtu:9000: not an item of a wish"},
		"more VNIs than a job has":   {"vni:5", "vni:5: not a number from 0 to 4"},
		"fewer than none":            {"vni:-1", "not a number from 0 to 4"},
		"two VLANs":                  {"vlan:2", "vlan:2: not a number from 1 to 1"},
		"no VLAN":                    {"vlan:0", "not a number from 1 to 1"},
		"a VLAN without number":      {"vlan", "vlan: not a number from 1 to 1"},
		"no number":                  {"vni:", "not a number"},
		"a number with zeros before": {"vni:01", "not as Slurm-V writes it"},
		"a number with a sign":       {"vni:+1", "not as Slurm-V writes it"},
		"another order":              {"vni:1,vlan:1", "not as Slurm-V writes it"},
		"the same twice":             {"vni:1,vni:1", "not as Slurm-V writes it"},
		"two numbers of one kind":    {"vni:1,vni:2", "not as Slurm-V writes it"},
		"nothing between commas":     {"vni:1,", `"": not an item`},
		"off with a value":           {"off:1", "not an item"},
		"off beside tags":            {"off,vni:1", "not as Slurm-V writes it"},
		"an unknown class":           {"vni:1,tc:fast", "fast is not a traffic class"},
		"classes in another order":   {"vni:1,tc:bulk+dedicated", "not in their order"},
		"a class twice":              {"vni:1,tc:bulk+bulk", "there twice"},
		"no class":                   {"vni:1,tc:", `"" is not a traffic class`},
		"classes for no tags":        {"tc:bulk", "not as Slurm-V writes it"},
		"VMs without VFs":            {"vni:1,vms:2", "not as Slurm-V writes it"},
		"VFs without VMs":            {"vni:1,vfs:2", "not as Slurm-V writes it"},
		"more VMs than a node has":   {"vlan:1,vms:1025,vfs:1", "not a number from 1 to 1024"},
		"more VFs than a VM has":     {"vlan:1,vms:1,vfs:64", "not a number from 1 to 63"},
		"a line break":               {"vni:1\n", `"vni:1\n": not a number`},
		"spaces":                     {"vni:1, vlan:1", "not an item"},
		"a long text":                {strings.Repeat("vni:1,", 22), "132 bytes long; at most 128 are allowed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w, err := ParseWish(tt.text)
			if err == nil || !strings.HasPrefix(err.Error(), "read the job's wish for tags: ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%q is %+v, error %v; want one with %q", tt.text, w, err, tt.want)
			}
		})
	}
}

func TestHowManyTagsAJobGets(t *testing.T) {
	vni := Pool{Name: "vni", Kind: VNI, PerJob: 3}
	tests := map[string]struct {
		text string
		pool Pool
		want int
		why  string
	}{
		"as it says":                   {"vni:2", vni, 2, ""},
		"as the pool says":             {"vni", vni, 3, ""},
		"none, if the pool says so":    {"vni", Pool{Kind: VNI}, 0, "none requested"},
		"none of a kind that it omits": {"vlan:1,vms:1,vfs:1", vni, 0, "none requested"},
		"none if it wants none":        {"vni:0", vni, 0, "none requested"},
		"none at all":                  {"off", vni, 0, "disabled by user request"},
		"one VLAN":                     {"vlan:1,vms:1,vfs:1", Pool{Kind: VLAN, PerJob: 1}, 1, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w, err := ParseWish(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if n, why := w.Count(tt.pool); n != tt.want || why != tt.why {
				t.Errorf("%d tags, because %q; want %d, %q", n, why, tt.want, tt.why)
			}
		})
	}
}

// For any text, the answer is an error of one line, or a wish with this text and no other
// within the bounds of what a job can have.
func FuzzParseWish(f *testing.F) {
	for _, tt := range wishes {
		f.Add(tt.text)
	}
	f.Add("vni:1,vni:1")
	f.Add("off,\x00")
	f.Fuzz(func(t *testing.T, text string) {
		w, err := ParseWish(text)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\x00\x1b") {
				t.Errorf("the error is not one line: %q", err)
			}
			return
		}
		if w.String() != text || w.Empty() {
			t.Errorf("%q is read as %+v, which is %q", text, w, w)
		}
		for _, kind := range Kinds {
			if n, _ := w.Count(Pool{Kind: kind, PerJob: config.MaxVNIs}); n < 0 || n > config.MaxVNIs {
				t.Errorf("%q wants %d of %s", text, n, kind)
			}
		}
	})
}
