package fabric

import (
	"math"
	"math/rand/v2"
	"testing"
)

// edges are the values at which bits could run into their neighbours.
func edges(bits int) (values []int) {
	for bit := range bits {
		values = append(values, 1<<bit, 1<<bit-1)
	}
	return append(values, 1<<bits-1)
}

// A vf is what a GUID is computed from.
type vf struct {
	job    uint32
	vm, vf int
}

func vfsToTry() (all []vf) {
	for _, job := range append(edges(31), math.MaxUint32) {
		for _, vm := range edges(14) {
			for _, index := range edges(6) {
				all = append(all, vf{uint32(job), vm, index})
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		all = append(all, vf{random.Uint32(), random.IntN(1 << 14), random.IntN(1 << 6)})
	}
	return all
}

func TestNoTwoVFsHaveOneGUID(t *testing.T) {
	owner := map[GUID]vf{}
	ports := map[GUID]bool{}
	for _, v := range vfsToTry() {
		port, node := PortGUID(v.job, v.vm, v.vf), NodeGUID(v.job, v.vm, v.vf)
		for _, g := range []GUID{port, node} {
			if other, taken := owner[g]; taken && other != v {
				t.Fatalf("%s is of %+v and of %+v", g, other, v)
			}
			owner[g] = v
			if first := byte(g >> 56); first&0x02 == 0 || first&0x01 != 0 {
				t.Fatalf("%s is not locally administered, or of a group", g)
			}
		}
		if ports[port] = true; ports[node] || !port.OfVF() || node.OfVF() {
			t.Fatalf("%s and %s of %+v are not apart", port, node, v)
		}
	}
}

func TestVFsBeyondTheBoundsHaveNoGUID(t *testing.T) {
	if PortGUID(1, 1<<14-1, 1<<6-1) == 0 {
		t.Error("the last VF has none, either")
	}
	for _, v := range []vf{{1, -1, 0}, {1, 1 << 14, 0}, {1, 0, -1}, {1, 0, 1 << 6}} {
		if port, node := PortGUID(v.job, v.vm, v.vf), NodeGUID(v.job, v.vm, v.vf); port != 0 || node != 0 {
			t.Errorf("%+v has %s and %s", v, port, node)
		}
	}
}

// The layout is the same in every version: a controller and its nodes may be of different ones.
func TestGUIDText(t *testing.T) {
	tests := map[string]struct {
		guid      GUID
		text, hex string
	}{
		"a port":         {PortGUID(4217, 2, 1), "02:50:00:01:07:90:00:81", "0x0250000107900081"},
		"its node":       {NodeGUID(4217, 2, 1), "02:60:00:01:07:90:00:81", "0x0260000107900081"},
		"the last":       {PortGUID(math.MaxUint32, 1<<14-1, 63), "02:5f:ff:ff:ff:ff:ff:ff", "0x025fffffffffffff"},
		"of a real port": {0x7cfe900300cb743a, "7c:fe:90:03:00:cb:74:3a", "0x7cfe900300cb743a"},
		"a small one":    {0x21, "00:00:00:00:00:00:00:21", "0x0000000000000021"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.guid.String() != tt.text || tt.guid.Hex() != tt.hex {
				t.Errorf("it is %s, %s, want %s, %s", tt.guid, tt.guid.Hex(), tt.text, tt.hex)
			}
			for _, text := range []string{tt.text, tt.hex, tt.hex[2:]} {
				if got, err := ParseGUID(text); got != tt.guid || err != nil {
					t.Errorf("%s reads %s, %v", text, got, err)
				}
			}
		})
	}
}

func TestTextsThatAreNoGUID(t *testing.T) {
	for _, text := range []string{"", "0x", "02:53:56:00:00:01", "0x12345678123456789", "-1", "GUID", "0x12 34", "1_2"} {
		if got, err := ParseGUID(text); err == nil {
			t.Errorf("%q reads %s", text, got)
		}
	}
}

func FuzzParseGUID(f *testing.F) {
	f.Add("0x0250000107900081")
	f.Add("02:50:00:01:07:90:00:81")
	f.Fuzz(func(t *testing.T, text string) {
		g, err := ParseGUID(text)
		if err != nil {
			return
		}
		for _, again := range []string{g.String(), g.Hex()} {
			if got, err := ParseGUID(again); got != g || err != nil {
				t.Errorf("%q reads %s, and that %s, %v", text, g, got, err)
			}
		}
	})
}
