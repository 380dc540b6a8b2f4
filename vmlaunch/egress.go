package vmlaunch

import (
	"context"

	"github.com/slurm-v/slurm-v/vmlaunch/egress"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
)

// wayOut is the way of a job's VMs out of their network.
type wayOut struct {
	vms    *machine.Set
	server *egress.Server // nil where the site gives VMs none
}

// serve starts the server, if the site gives VMs a way out.
func (w *wayOut) serve(ctx context.Context) (err error) {
	if p := w.vms.Plan; len(p.Network.Egress) > 0 {
		w.server, err = egress.Start(ctx, p.Owner, p.Job.ID.String(), p.Network.Egress)
	}
	return err
}

// connect gives a VM its way out. A VM without it is still good for most programs.
func (w *wayOut) connect(ctx context.Context, m *machine.Machine) error {
	if w.server == nil {
		return nil
	}
	stream, err := m.Session().Egress(ctx)
	if err != nil {
		return err
	}
	server, err := w.server.Connect()
	if err != nil {
		return err
	}
	go func() {
		err := stream.Serve(server)
		w.vms.Log.Debug("the way out of the network has ended", "vm", m.Plan.Name, "reason", err)
	}()
	return nil
}

// close ends the server.
func (w *wayOut) close() {
	if w.server != nil {
		_ = w.server.Close()
	}
}
