package plan

// VMsOf returns the VMs of the job's node with that rank, with what does not depend on the
// node's hardware.
func (p Plan) VMsOf(rank int) (vms []VM, err error) {
	p.Job.Rank = rank
	for i := range p.Job.Spec.VMsPerNode {
		vm, err := p.vm(i)
		if err != nil {
			return nil, err
		}
		vms = append(vms, vm)
	}
	return vms, nil
}
