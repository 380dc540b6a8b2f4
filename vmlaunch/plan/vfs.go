package plan

import (
	"fmt"
	"net/netip"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/vmnet"
)

// vfHosts returns the names and addresses of the VFs of one VM of the job, vm3-vf0. number
// is the VM's number in the job.
func (p Plan) vfHosts(number int) ([]guest.Host, error) {
	vfs, err := p.vfs(number)
	var hosts []guest.Host
	for i, vf := range vfs {
		if vf.Address.IsValid() {
			hosts = append(hosts, guest.Host{Name: fmt.Sprintf("vm%d-vf%d", number, i), Address: vf.Address.Addr().String()})
		}
	}
	return hosts, err
}

// tagOf returns the tag of a kind that the job's VFs have; 0 for none.
func tagOf(r fabric.Reservation, kind fabric.Kind) uint16 {
	if tags := r.Tags(kind); len(tags) > 0 {
		return uint16(tags[0])
	}
	return 0
}

// pkeyOf returns the job's P_Key as full members write it; 0 for none.
func pkeyOf(r fabric.Reservation) uint16 {
	if pkey := tagOf(r, fabric.PKey); pkey != 0 {
		return pkey | fabric.FullMember
	}
	return 0
}

// vfs returns the addresses of a VM's VFs. They depend only on the job and on the VM's
// number in it, so every node can compute them.
func (p Plan) vfs(number int) ([]VF, error) {
	wanted := p.Job.Spec.SRIOV.VFs
	vfs := make([]VF, len(wanted))
	for i := range wanted {
		vfs[i].MAC = vmnet.VFMAC(p.mac(number), i).String()
		vfs[i].GUIDs = GUIDs{fabric.NodeGUID(p.Job.ID.Job, number, i).String(), fabric.PortGUID(p.Job.ID.Job, number, i).String()}
		if p.VFSubnet == "" {
			continue
		}
		subnet, err := netip.ParsePrefix(p.VFSubnet)
		if err != nil {
			return nil, fmt.Errorf("vf.subnet: %w", err)
		}
		addr, err := vmnet.Address(subnet, number*len(wanted)+i)
		if err != nil {
			return nil, fmt.Errorf("vf.subnet: %w", err)
		}
		vfs[i].Address = netip.PrefixFrom(addr, subnet.Bits())
	}
	return vfs, nil
}
