package vfpool

import (
	"fmt"
	"io"

	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vfpool/lease"
)

// A PF is a physical function as `slurmv vf list` prints it: what it has and what is taken.
// The first six JSON names are those of ConRDMA's node inventory; rates are in Mb/s.
type PF struct {
	Name     string `json:"name"`
	Used     uint32 `json:"used_tx_rate"`     // sum of the minima
	Capacity uint32 `json:"capacity_tx_rate"` // what the minima may add up to
	UsedVFs  int    `json:"used_vfs"`
	CapVFs   int    `json:"capacity_vfs"` // that can be given to VMs
	VFs      []VF   `json:"vfs"`

	Kind      device.Kind `json:"kind"`
	PCI       string      `json:"pci,omitempty"`
	Driver    string      `json:"driver"`
	LinkLayer string      `json:"link_layer,omitempty"`
	Speed     uint32      `json:"speed"` // of the link
	Up        bool        `json:"up"`
	NUMA      int         `json:"numa"`
	TotalVFs  int         `json:"total_vfs"` // that it could have
	Unusable  string      `json:"unusable,omitempty"`
	Notes     []string    `json:"notes,omitempty"` // what its VFs lack, though they can be used
}

// A VF is one virtual function and the job that has it. The JSON names up to allocated
// are ConRDMA's.
type VF struct {
	Index      int              `json:"vf"`
	MAC        string           `json:"mac,omitempty"`
	NodeGUID   string           `json:"node_guid,omitempty"` // on InfiniBand
	PortGUID   string           `json:"port_guid,omitempty"`
	PKey       uint16           `json:"pkey,omitempty"`
	VLAN       uint16           `json:"vlan"`
	SpoofCheck bool             `json:"spoof_check"`
	Trust      bool             `json:"trust"`
	Link       device.LinkState `json:"link_state,omitempty"`
	MinRate    uint32           `json:"min_tx_rate"`
	MaxRate    uint32           `json:"max_tx_rate"`
	Allocated  bool             `json:"allocated"`

	PCI        string      `json:"pci,omitempty"`
	Group      int         `json:"iommu_group"` // -1 if it has none
	Job        string      `json:"job,omitempty"`
	VM         int         `json:"vm"` // of the job on this node; -1 if nobody has it
	State      lease.Phase `json:"state,omitempty"`
	Unusable   string      `json:"unusable,omitempty"`
	Quarantine string      `json:"quarantine,omitempty"` // why it could not be restored
}

// List returns the node's PFs that the site allows.
func (p *Pool) List() ([]PF, error) {
	records, err := p.leases.Read()
	if err != nil {
		return nil, err
	}
	pfs, err := p.pfs()
	if err != nil {
		return nil, err
	}
	list := []PF{}
	for _, u := range count(p.cfg, pfs, records) {
		list = append(list, u.describe())
	}
	return list, nil
}

func (u use) describe() PF {
	pf := PF{
		Name: u.Name, Used: u.used, Capacity: u.capacity, UsedVFs: len(u.leases), VFs: []VF{},
		Kind: u.Kind, PCI: u.PCI, Driver: u.Driver, LinkLayer: u.LinkLayer, Speed: u.Speed, Up: u.Up,
		NUMA: u.NUMA, TotalVFs: u.TotalVFs, Unusable: u.Unusable.String(),
	}
	for _, note := range u.Notes {
		pf.Notes = append(pf.Notes, note.String())
	}
	for _, vf := range u.VFs {
		r, taken := u.leases[vf.Index]
		if taken || vf.Unusable.Seen == "" {
			pf.CapVFs++
		}
		pf.VFs = append(pf.VFs, describeVF(vf, r, taken))
	}
	return pf
}

func describeVF(vf device.VF, r lease.Lease, taken bool) VF {
	d := VF{Index: vf.Index, PCI: vf.PCI, Group: vf.Group, VM: -1, Unusable: vf.Unusable.String()}
	if !taken {
		return d
	}
	d.MAC, d.VLAN, d.SpoofCheck, d.Trust, d.Link = r.Want.MAC, r.Want.VLAN, r.Want.SpoofCheck, r.Want.Trust, r.Want.Link
	d.NodeGUID, d.PortGUID, d.PKey = r.Want.NodeGUID, r.Want.PortGUID, r.Want.PKey
	d.MinRate, d.MaxRate, d.Allocated = r.Want.MinRate, r.Want.MaxRate, true
	d.Job, d.VM, d.State, d.Quarantine = r.Job.String(), r.VM, r.Phase, r.Quarantine
	return d
}

// WriteGRES writes the lines of gres.conf with which Slurm counts a node's VFs and their
// bandwidth, in Mb/s. Slurm only counts: the pool decides which VF a job gets.
func WriteGRES(w io.Writer, node string, pfs []PF) error {
	vfs, mbps := 0, uint64(0)
	for _, pf := range pfs {
		if pf.Unusable != "" {
			continue
		}
		vfs += pf.CapVFs
		mbps += uint64(pf.Capacity)
	}
	_, err := fmt.Fprintf(w, `# slurm.conf: GresTypes=vf,vfbw and, on the line of the node, Gres=vf:%[2]d,vfbw:%[3]d
NodeName=%[1]s Name=vf Count=%[2]d Flags=CountOnly
NodeName=%[1]s Name=vfbw Count=%[3]d Flags=CountOnly
`, node, vfs, mbps)
	return err
}
