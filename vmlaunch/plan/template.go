package plan

import (
	"path/filepath"

	"github.com/slurm-v/slurm-v/images/template"
)

// TemplateMAC is the MAC address of a template's NIC. No VM of a job has it, and the bridge
// drops frames from it.
const TemplateMAC = "02:73:76:2d:74:6d"

// TemplateVM is the VM that becomes the template t. It borrows the tap of the job's first
// VM, since no VM of the job runs yet, and has that VM's topology: a guest learns only at
// boot how its vCPUs lie.
func (p Plan) TemplateVM(t template.Template) VM {
	return VM{
		Number: p.VMs[0].Number, Name: "template", Domain: "slurmv-" + p.Job.ID.String() + "-template",
		UUID: p.UUID(-1), MAC: TemplateMAC, Tap: p.VMs[0].Tap, Pinning: p.VMs[0].Pinning,
		Dir: t.Dir, Overlay: t.Disk(), Seed: t.Seed(),
		Vars:    filepath.Join(p.State, "template.vars"),
		Console: filepath.Join(p.Ports(), "template.console"),
		Channel: filepath.Join(p.Ports(), "template.channel"),
	}
}
