package config

import (
	"fmt"
	"maps"
	"slices"
)

// VF says which virtual functions jobs may have, and how.
type VF struct {
	PFs     []string `toml:"pfs"` // names of those that may be used; empty for every PF that has VFs
	Mode    VFMode   `toml:"mode"`
	Reserve int      `toml:"reserve"` // percent of a PF's speed that is kept for the node
	Subnet  string   `toml:"subnet"`  // IPv4 prefix in which VFs get addresses; "" for no addresses
	Requeue bool     `toml:"requeue"` // requeue a job whose VFs do not fit on a node after all

	Create      int            `toml:"create"`        // how many VFs slurmv vf create makes of each of PFs
	CreatePerPF map[string]int `toml:"create_per_pf"` // the same by the PF's name, in place of Create

	// Software has the bridges that stand for PFs, by the PF's name.
	Software map[string]SoftwarePF `toml:"software"`
}

// VFMode is what happens if a PF's driver cannot make a setting.
type VFMode string

// The values of VFMode.
const (
	VFStrict VFMode = "strict" // the VF is refused
	VFSoft   VFMode = "soft"   // a minimum is only counted
)

// A SoftwarePF is a bridge whose taps are VFs.
type SoftwarePF struct {
	Bridge string `toml:"bridge"`
	Rate   Rate   `toml:"rate"` // of all its VFs together
	VFs    int    `toml:"vfs"`
	NUMA   int    `toml:"numa"` // -1 for no node
}

// CreateOf returns how many VFs are made of a PF; 0 if it is left alone.
func (v VF) CreateOf(pf string) int {
	if n, ok := v.CreatePerPF[pf]; ok {
		return n
	}
	return v.Create
}

// Allows reports whether jobs may use the VFs of the PF of that name.
func (v VF) Allows(pf string) bool { return len(v.PFs) == 0 || slices.Contains(v.PFs, pf) }

// CreatedPFs returns the PFs that have numbers of their own.
func (v VF) CreatedPFs() []string { return slices.Sorted(maps.Keys(v.CreatePerPF)) }

func defaultSoftwarePF() SoftwarePF { return SoftwarePF{VFs: 16, NUMA: -1} }

func (v VF) validate() error {
	for _, name := range v.PFs {
		if err := interfaceName("vf.pfs", name); err != nil {
			return err
		}
	}
	return firstOf(
		oneOf("vf.mode", v.Mode, VFStrict, VFSoft),
		within("vf.reserve", v.Reserve, 0, 99),
		v.validateSubnet(),
		v.validateCreate(),
		v.validateSoftware(),
	)
}

func (v VF) validateSubnet() error {
	if v.Subnet == "" {
		return nil
	}
	return vmSubnet("vf.subnet", v.Subnet)
}

// validateCreate wants names: while VFs are made, a PF's link may go down, and one of the
// PFs is the node's own.
func (v VF) validateCreate() error {
	if err := within("vf.create", v.Create, 0, mostVFs); err != nil {
		return err
	}
	if v.Create > 0 && len(v.PFs) == 0 {
		return fmt.Errorf(`vf.create: no PFs are named; name them in vf.pfs, or write vf.create_per_pf instead`)
	}
	for _, name := range v.CreatedPFs() {
		key := "vf.create_per_pf." + Quote(name)
		if err := firstOf(interfaceName(key, name), within(key, v.CreatePerPF[name], 0, mostVFs)); err != nil {
			return err
		}
		if len(v.PFs) > 0 && !slices.Contains(v.PFs, name) {
			return fmt.Errorf("%s: not in vf.pfs, so no job can have its VFs; add it there", key)
		}
	}
	return nil
}

// mostVFs is more than any card has.
const mostVFs = 4096

func (v VF) validateSoftware() error {
	for _, name := range slices.Sorted(maps.Keys(v.Software)) {
		key := "vf.software." + Quote(name)
		if err := firstOf(interfaceName(key, name), v.Software[name].validate(key)); err != nil {
			return err
		}
	}
	return nil
}

func (p SoftwarePF) validate(key string) error {
	return firstOf(
		interfaceName(key+".bridge", p.Bridge),
		rateWithin(key+".rate", p.Rate, 1, MaxRate),
		within(key+".vfs", p.VFs, 1, 256),
		within(key+".numa", p.NUMA, -1, 1023),
	)
}

func rateWithin(key string, rate, least, most Rate) error {
	if rate < least || rate > most {
		return fmt.Errorf("%s: %s is not allowed; use %s to %s", key, rate, least, most)
	}
	return nil
}
