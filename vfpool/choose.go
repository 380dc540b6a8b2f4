package vfpool

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vfpool/lease"
	"github.com/slurm-v/slurm-v/vfpool/place"
)

// A VFRequest is one VF that a VM asks for, from the plan to the lease.
type VFRequest = place.VFRequest

// ErrNoFit matches the error for a demand that this node cannot serve now.
var ErrNoFit = errors.New("VFs do not fit")

// A noFitError says why a demand does not fit on this node.
type noFitError struct {
	Reason string
	Unused []string // PFs that nobody can use, each with the reason
}

func (e *noFitError) Error() string {
	return strings.Join(append([]string{e.Reason}, e.Unused...), "; ")
}

// Is reports whether target is [ErrNoFit].
func (e *noFitError) Is(target error) bool { return target == ErrNoFit }

// A use is a PF with what is left of it.
type use struct {
	device.PF
	capacity uint32              // in Mb/s, for VFs
	used     uint32              // sum of the minima
	leases   map[int]lease.Lease // by the index of the VF
}

// left returns the bandwidth that new minima can use, in Mb/s.
func (u use) left() uint32 { return u.capacity - min(u.used, u.capacity) }

// free returns the VFs that no job has.
func (u use) free() []device.VF {
	var vfs []device.VF
	for _, vf := range u.VFs {
		if _, taken := u.leases[vf.Index]; !taken && vf.Unusable.Seen == "" {
			vfs = append(vfs, vf)
		}
	}
	return vfs
}

// allowed returns the PFs that the site lets jobs use.
func allowed(cfg config.VF, pfs []device.PF) []device.PF {
	return slices.DeleteFunc(slices.Clone(pfs), func(pf device.PF) bool {
		return pf.Kind == device.SRIOV && !cfg.Allows(pf.Name)
	})
}

// count assigns the records to their PFs. Records from before the last boot do not count:
// the power-off has reset the VFs' settings.
func count(cfg config.VF, pfs []device.PF, records []lease.Lease) []use {
	held := map[lease.Key]lease.Lease{}
	for _, r := range records {
		if !r.OldBoot {
			held[r.Key()] = r
		}
	}
	uses := make([]use, len(pfs))
	for i, pf := range pfs {
		uses[i] = use{PF: pf, capacity: capacity(cfg, pf), leases: map[int]lease.Lease{}}
		for _, vf := range pf.VFs {
			if r, taken := held[lease.KeyOf(vf)]; taken {
				uses[i].leases[vf.Index] = r
				uses[i].used += r.Want.MinRate
			}
		}
	}
	return uses
}

// capacity returns the bandwidth that the minima of a PF's VFs may add up to, in Mb/s.
func capacity(cfg config.VF, pf device.PF) uint32 {
	return uint32(uint64(pf.Speed) * uint64(100-cfg.Reserve) / 100)
}

// choose decides which VF each request gets. It is pure.
func choose(uses []use, d Demand, soft bool) ([]Grant, error) {
	usable, unused := split(uses, d)
	free := make([]place.Free, len(usable))
	for i, u := range usable {
		free[i] = place.Free{
			PF: u.Name, NUMA: u.NUMA, Mbps: u.left(), VFs: len(u.free()),
			MinRate: u.Caps.MinRate, MaxRate: u.Caps.MaxRate,
		}
	}
	chosen, err := place.Place(free, d.Requests, soft)
	if errors.Is(err, place.ErrNoFit) {
		return nil, &noFitError{Reason: err.Error(), Unused: unused}
	}
	if err != nil {
		return nil, err
	}
	return grants(usable, d, chosen, soft), nil
}

// split separates the PFs that can serve the job from those that cannot. It says why each
// of the latter cannot: nobody can use it, or its VFs cannot have the job's tag.
func split(uses []use, d Demand) (usable []use, unused []string) {
	for _, u := range uses {
		switch {
		case u.Unusable.Seen != "":
			unused = append(unused, fmt.Sprintf("%s: %s", u.Name, u.Unusable))
		case d.partitioned(u.PF):
			if !u.Caps.GUID && !u.Caps.PKeyIndex {
				unused = append(unused, fmt.Sprintf("%s: its driver, %s, cannot put VFs into the job's partition", u.Name, u.Driver))
				continue
			}
			usable = append(usable, u)
		case d.VLAN != 0 && !u.Caps.VLAN && !u.Caps.Services:
			unused = append(unused, fmt.Sprintf("%s: its driver, %s, cannot put VFs into the job's VLAN", u.Name, u.Driver))
		default:
			usable = append(usable, u)
		}
	}
	if len(uses) == 0 {
		unused = append(unused, "it has no physical function with VFs; see 'slurmv check' there")
	}
	return usable, unused
}

// partitioned reports whether the job's tag on a PF is a P_Key. On others it is a VLAN.
func (d Demand) partitioned(pf device.PF) bool { return d.PKey != 0 && pf.LinkLayer == infiniband }

// infiniband is the kernel's name of the link layer.
const infiniband = "infiniband"

// grants gives each request the next free VF of its PF.
func grants(uses []use, d Demand, chosen []int, soft bool) []Grant {
	free := make([][]device.VF, len(uses))
	for i, u := range uses {
		free[i] = u.free()
	}
	result := make([]Grant, len(d.Requests))
	for i, r := range d.Requests {
		pf := chosen[i]
		settings, note := settingsOf(r, d, uses[pf].PF, soft)
		result[i] = Grant{Request: r, VF: free[pf][0], Settings: settings, Note: note}
		if uses[pf].Caps.Services {
			result[i].Slingshot = uses[pf].PCI
		}
		free[pf] = free[pf][1:]
	}
	return result
}

// settingsOf returns the settings for a VF. In soft mode it omits those that the driver
// cannot set, and names them in the note.
func settingsOf(r VFRequest, d Demand, pf device.PF, soft bool) (device.Settings, string) {
	s := device.Settings{
		MAC: r.MAC, MinRate: r.VF.MinMbps, MaxRate: r.VF.MaxMbps,
		SpoofCheck: true, Link: device.LinkAuto,
	}
	if pf.LinkLayer == infiniband {
		s = onInfiniBand(s, r, pf.Caps)
	}
	switch {
	case d.partitioned(pf):
		s.PKey = d.PKey
	case !pf.Caps.Services:
		s.VLAN = d.VLAN
	}
	var missing []string
	if soft && s.MinRate > 0 && !pf.Caps.MinRate {
		s.MinRate, missing = 0, append(missing, "a minimum")
	}
	if soft && s.MaxRate > 0 && !pf.Caps.MaxRate {
		s.MaxRate, missing = 0, append(missing, "a maximum")
	}
	if missing == nil {
		return s, ""
	}
	return s, fmt.Sprintf("the rate of VF %d on %s is accounted only: its driver, %s, has not %s",
		r.Index, pf.Name, pf.Driver, strings.Join(missing, " and "))
}

// onInfiniBand replaces the MAC by the GUIDs that the PF can set.
func onInfiniBand(s device.Settings, r VFRequest, caps device.Caps) device.Settings {
	s.MAC = ""
	if caps.GUID {
		s.NodeGUID = r.NodeGUID
	}
	if caps.GUID || caps.PKeyIndex {
		s.PortGUID = r.PortGUID
	}
	return s
}
