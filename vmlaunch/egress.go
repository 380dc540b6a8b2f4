package vmlaunch

import (
	"context"

	"github.com/slurm-v/slurm-v/vmlaunch/egress"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
)

// serveEgress starts the server of the VMs' way out of their network, if the site gives them
// one.
func (v *VMs) serveEgress() (err error) {
	if len(v.Plan.Network.Egress) > 0 {
		v.egress, err = egress.Start(v.Plan.Owner, v.Plan.Job.ID.String(), v.Plan.Network.Egress)
	}
	return err
}

// connectOutside gives a VM its way out. A VM without it is still good for most programs.
func (v *VMs) connectOutside(ctx context.Context, m *machine.Machine) error {
	if v.egress == nil {
		return nil
	}
	stream, err := m.Session().Egress(ctx)
	if err != nil {
		return err
	}
	server, err := v.egress.Connect()
	if err != nil {
		return err
	}
	go func() {
		err := stream.Serve(server)
		v.Log.Debug("the way out of the network has ended", "vm", m.Plan.Name, "reason", err)
	}()
	return nil
}

// closeEgress ends the server.
func (v *VMs) closeEgress() {
	if v.egress != nil {
		_ = v.egress.Close()
	}
}
