package vmlaunch

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slurm-v/slurm-v/fabric/node"
	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vmlaunch/hypervisor"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmlaunch/serve"
	"github.com/slurm-v/slurm-v/vmstep"
)

// VMs are the running VMs of one job on one node, from launch until the step ends.
type VMs struct {
	*machine.Set

	store    store
	journal  *journal.Journal
	driver   *hypervisor.Driver
	versions string // of QEMU and libvirt
	backend  backend
	links    *network // of the job's network on this node
	shared   *sharedMemory
	warmer   *warmer
	tags     node.Tags // on the fabric

	directories directories
	wayOut      wayOut

	userData []byte        // for cloud-init, the same in every VM
	up       time.Duration // when all VMs of this node were up, on the record's clock
}

func newVMs(s store, p plan.Plan, slurm Slurmctld, j *journal.Journal, clock *machine.Stopwatch, progress func(vmstep.Progress)) *VMs {
	v := &VMs{
		Set: machine.NewSet(p, clock, progress), store: s, journal: j,
		links: &network{plan: p, slurm: slurm},
	}
	v.backend = backendOf(v)
	v.shared, v.warmer = newSharedMemory(v), &warmer{VMs: v}
	v.directories.vms, v.wayOut.vms = v.Set, v.Set
	return v
}

// close closes what this process holds open. It leaves the VMs running: the journal lists
// them, and [Reclaim] ends them.
func (v *VMs) close() {
	v.Close()
	v.backend.close()
	v.shared.close()
	v.directories.close()
	v.wayOut.close()
}

// Serve answers on the job's socket until the step ends: until a stop request, or until ctx
// ends. It gives up all privileges that serving does not need, and calls ready once callers
// can connect. It leaves the VMs running; [Reclaim] ends them.
func (v *VMs) Serve(ctx context.Context, ready func()) error {
	defer v.close()
	return serve.New(v.Set, v.connect, v.shared.wipe, v.environment).Serve(ctx, ready)
}

// connect tells every VM of this node about all VMs of the job, and connects this node's
// part of the job's network to the other nodes.
func (v *VMs) connect(ctx context.Context, all []nodeagent.NodeVMs) error {
	hosts, peers, err := v.Plan.ReadMap(all)
	if err != nil {
		return err
	}
	if err := v.links.connect(ctx, peers); err != nil {
		return err
	}
	if err := v.nameHosts(ctx, hosts); err != nil {
		return err
	}
	v.noteMapped()
	return nil
}

// nameHosts writes the names of the job's VMs into every VM.
func (v *VMs) nameHosts(ctx context.Context, hosts []guest.Host) error {
	each, ctx := errgroup.WithContext(ctx)
	each.SetLimit(hostsAtOnce)
	for _, m := range v.Machines {
		each.Go(func() error {
			if err := m.Session().SetHosts(ctx, hosts); err != nil {
				return fmt.Errorf("write the hosts of the job into %s: %w", m.Plan.Name, err)
			}
			return nil
		})
	}
	return each.Wait()
}

// hostsAtOnce bounds how many VMs get the job's names at once: the names are megabytes in
// the largest jobs.
const hostsAtOnce = 16

// noteMapped completes the record of the launch. Failing to record must not fail the job.
func (v *VMs) noteMapped() {
	v.Clock.Note(nodeagent.StageNetwork, v.up, v.Clock.Now())
	if err := v.recordStages(); err != nil {
		v.Log.Warn("the record of the launch is not complete", "error", err)
	}
}

// stagesFile is the name of the launch's record in the job's directory.
const stagesFile = "stages.json"

// recordStages writes down, for people, when the stages of the launch began and ended.
func (v *VMs) recordStages() error {
	text, err := json.MarshalIndent(v.Describe(), "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(v.Plan.State, stagesFile), text, 0o600)
}
