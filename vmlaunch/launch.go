package vmlaunch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"
	"libvirt.org/go/libvirtxml"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/internal/vmnet"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vmstep"
)

// The kinds of records in a job's journal, each undone by [Reclaim].
const (
	recordFiles   = "files"   // what lies beside the journal: disks, logs
	recordImage   = "image"   // the job's copies in the image cache, which knows what they are
	recordRun     = "run"     // the job's directory of sockets; libvirt's root is below it
	recordNetwork = "network" // all links and filters of the job
	recordVFs     = "vfs"     // all VFs of the job; the pool knows which
	recordRegion  = "ivshmem" // one region of shared memory; its name is the file's
	recordDomain  = "domain"  // one VM; its name is the UUID
)

// Launch starts the VMs of job on this node and returns when the agent in each
// has reported. progress is called, from several goroutines, as VMs pass the
// stages. If Launch fails, it has given back all that it took.
func Launch(ctx context.Context, cfg config.Config, job Job, progress func(vmstep.Progress)) (*Node, error) {
	clock := startStopwatch(job.Requested)
	plan, err := decide(cfg, job)
	if err != nil {
		return nil, err
	}
	j, err := openJournal(ctx, cfg, job)
	if err != nil {
		return nil, err
	}
	clock.note(stagePlan, 0, clock.now())
	n := newNode(plan, j, clock, progress)
	if err := n.launch(ctx, cfg); err != nil {
		n.log.Error("launch", "error", err)
		n.close()
		// The cause of the failure may be that ctx has ended.
		return nil, errors.Join(err, reclaim(context.WithoutCancel(ctx), cfg, j))
	}
	return n, nil
}

// decide does all that needs no lock: it checks the request and plans.
func decide(cfg config.Config, job Job) (Plan, error) {
	owner, err := LookupOwner(job.UID, job.GID)
	if err != nil {
		return Plan{}, err
	}
	return decideFor(cfg, job, owner)
}

func decideFor(cfg config.Config, job Job, owner Owner) (Plan, error) {
	if err := job.Admit(cfg); err != nil {
		return Plan{}, err
	}
	hw, err := inspectHardware("/", cfg.QEMU.Accel, job.Spec)
	if err != nil {
		return Plan{}, err
	}
	return NewPlan(cfg, job, owner, hw)
}

// openJournal starts the job's journal. What the job left behind earlier, in
// another step or before it was requeued, is reclaimed first; VMs that live are
// somebody's. A step can lie about its restart count, so any of the job counts.
func openJournal(ctx context.Context, cfg config.Config, job Job) (*journal.Journal, error) {
	state := cfg.StateDir(job.Node)
	ids, err := journal.List(state)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if id.Job != job.ID.Job {
			continue
		}
		if inUse(state, id) {
			return nil, fmt.Errorf("the VMs of job %d are already running", id.Job)
		}
		if err := Reclaim(ctx, cfg, job.Node, id); err != nil {
			return nil, err
		}
	}
	return journal.Create(state, job.ID, journal.Header{
		Step: job.Step, UID: job.UID, GID: job.GID, Node: job.Node, Cluster: job.Cluster,
		JobName: job.Name, WorkDir: job.Spec.WorkDir, Spec: job.Spec.Encode(),
	})
}

func inUse(state string, id journal.ID) bool {
	j, err := journal.Open(state, id)
	if err == nil {
		_ = j.Close()
	}
	return errors.Is(err, journal.ErrLocked)
}

// launch prepares what the VMs share, at once, and then starts them, as many at
// once as the node can take.
func (n *Node) launch(ctx context.Context, cfg config.Config) error {
	if err := n.makeDirs(); err != nil {
		return err
	}
	if err := n.openLog(); err != nil {
		return err
	}
	n.logPinning()
	image, err := n.prepare(ctx, cfg)
	if err == nil {
		err = n.chooseStart(ctx, cfg, image)
	}
	if err == nil {
		err = n.startMachines(ctx, cfg, image)
	}
	n.up = n.clock.now()
	return errors.Join(err, n.recordStages())
}

// prepare makes what the VMs share, all of it at once.
func (n *Node) prepare(ctx context.Context, cfg config.Config) (image images.Info, err error) {
	for _, m := range n.machines {
		m.tell(stageImage)
	}
	shared, ctx := errgroup.WithContext(ctx)
	if cfg.Measure.NoOverlap {
		shared.SetLimit(1)
	}
	atOnce := func(stage string, do func() error) {
		shared.Go(func() error { return n.clock.during(stage, do) })
	}
	shared.Go(func() error { return n.askHosts(ctx) })
	atOnce(stageImage, func() (err error) {
		image, err = n.stageImage(ctx, cfg)
		return err
	})
	atOnce(stageTaps, func() error { return n.connectNetwork(ctx) })
	atOnce(stageVF, func() error { return n.leaseVFs(ctx, cfg) })
	atOnce(stageLibvirt, func() error { return n.openHypervisor(cfg) })
	shared.Go(func() error { return n.readUserData(ctx) })
	shared.Go(func() error { return n.leaseRegions(cfg) })
	return image, shared.Wait()
}

// startMachines starts the VMs, while the memory that they are to share is being
// allocated.
func (n *Node) startMachines(ctx context.Context, cfg config.Config, image images.Info) error {
	each, ctx := errgroup.WithContext(ctx)
	regions := func() error {
		return n.clock.during(stageIVShmem, func() error { return n.makeRegions(ctx, cfg) })
	}
	if !cfg.Measure.NoOverlap {
		each.Go(regions)
	} else if err := regions(); err != nil {
		return err
	}
	turns := newTurns(cfg, runtime.NumCPU(), n.busyGuests(), len(n.machines))
	for _, m := range n.machines {
		each.Go(func() error {
			if err := turns.take(ctx, m); err != nil {
				return err
			}
			defer m.turn.end()
			if err := n.startMachine(ctx, m, image); err != nil {
				m.enter("failed")
				return fmt.Errorf("%s: %w", m.plan.Name, err)
			}
			return nil
		})
	}
	return each.Wait()
}

// makeDirs makes the directories that root owns. The owner passes through them
// to his own VM's directory, and sees nothing else.
func (n *Node) makeDirs() error {
	if err := errors.Join(
		n.journal.Intend(recordFiles, n.plan.State, nil),
		n.journal.Intend(recordRun, n.plan.Run, nil)); err != nil {
		return err
	}
	if err := n.makeRunDirs(); err != nil {
		return err
	}
	for _, vm := range n.plan.VMs {
		if err := os.MkdirAll(vm.Dir, 0o700); err != nil {
			return err
		}
		if err := os.Chown(vm.Dir, int(n.plan.Owner.UID), int(n.plan.Owner.GID)); err != nil {
			return err
		}
	}
	return errors.Join(
		os.Chmod(n.plan.State, 0o711),
		n.journal.Done(recordFiles, n.plan.State),
		n.journal.Done(recordRun, n.plan.Run))
}

// makeRunDirs makes the directories of sockets. The owner passes through to the agent's,
// and QEMU, which has the owner's group, to libvirt's files for it.
func (n *Node) makeRunDirs() error {
	libvirt := filepath.Join(n.plan.Run, "libvirt")
	return errors.Join(
		os.MkdirAll(n.plan.Run, 0o711),
		os.MkdirAll(n.plan.ports(), 0o700),
		os.MkdirAll(libvirt, 0o710),
		os.Chown(libvirt, 0, int(n.plan.Owner.GID)))
}

// openHypervisor opens libvirt's driver and asks it which QEMU it has. For the first job of
// a node libvirt then finds out all that this QEMU can do: seconds, in which the image comes.
func (n *Node) openHypervisor(cfg config.Config) (err error) {
	root := filepath.Join(n.plan.Run, "libvirt")
	cache := filepath.Join(cfg.StateDir(n.plan.Job.Node), "libvirt-cache")
	if n.hypervisor, err = openEmbedded(root, cache, n.plan.emulatorLogs()); err != nil {
		return err
	}
	if n.versions, err = n.hypervisor.versions(); err != nil {
		return err
	}
	return n.hypervisor.onStop(n.stopped)
}

// connectNetwork makes the job's network with a tap for every VM.
func (n *Node) connectNetwork(ctx context.Context) error {
	if err := n.journal.Intend(recordNetwork, n.plan.Job.ID.String(), nil); err != nil {
		return err
	}
	if err := n.createNetwork(ctx); err != nil {
		return err
	}
	taps, err := n.taps()
	if err != nil {
		return err
	}
	if n.mtu, err = vmnet.AddTaps(ctx, n.plan.Job.ID, taps...); err != nil {
		return err
	}
	return n.journal.Done(recordNetwork, n.plan.Job.ID.String())
}

// startMachine takes one VM from nothing to ready: from the template if there is one,
// else, or if that fails where it is not all that the user wants, by booting.
func (n *Node) startMachine(ctx context.Context, m *machine, image images.Info) error {
	if n.from == nil {
		return n.bootMachine(ctx, m, image)
	}
	err := n.restoreMachine(ctx, m)
	switch {
	case err == nil:
		m.enter("ready")
	case ctx.Err() == nil && n.plan.Job.Spec.Start != config.StartWarm:
		n.log.Warn("VM is booted, not restored", "vm", m.plan.Name, "reason", err)
		return n.bootMachine(ctx, m, image)
	}
	return err
}

// bootMachine takes one VM from nothing to ready by booting.
func (n *Node) bootMachine(ctx context.Context, m *machine, image images.Info) error {
	m.pass("disk")
	if err := n.prepareDisks(ctx, m, image); err != nil {
		return err
	}
	if err := n.startDomain(m, n.plan.domain(m.plan, m.vfs)); err != nil {
		return err
	}
	m.enter("boot")
	wait, cancel := withPatience(ctx, n.plan.Job.Spec.ReadyTimeout)
	defer cancel()
	go m.turn.watch(wait, func() (time.Duration, error) { return n.computed(m) })
	if err := n.meetGuest(wait, m); err != nil {
		return n.explainBoot(wait, m, err)
	}
	m.enter("ready")
	return nil
}

// startDomain defines the domain, writes it down and only then starts it: a start
// that is still under way when the job is reclaimed is found by its UUID.
func (n *Node) startDomain(m *machine, d *libvirtxml.Domain) error {
	m.pass("define")
	var err error
	if m.domain, err = n.hypervisor.define(d); err != nil {
		return err
	}
	if err := n.journal.Intend(recordDomain, m.plan.UUID, m.plan.Domain); err != nil {
		return err
	}
	m.enter("start")
	if err := m.domain.Create(); err != nil {
		return fmt.Errorf("start domain %s: %w", m.plan.Domain, plain(err))
	}
	return n.domainStarted(m)
}

// domainStarted writes down that QEMU runs, and begins to record the console.
func (n *Node) domainStarted(m *machine) (err error) {
	if err := n.journal.Done(recordDomain, m.plan.UUID); err != nil {
		return err
	}
	if err := n.checkOwner(m); err != nil {
		return err
	}
	m.console, err = openConsole(m.plan.Console, filepath.Join(n.plan.State, m.plan.Name+".console"))
	return err
}

// explainBoot says what a user can do about a guest that does not report.
func (n *Node) explainBoot(ctx context.Context, m *machine, err error) error {
	if why := m.stopReason(); why != "" {
		return fmt.Errorf("the VM %s before its guest agent reported; see its console with 'slurmv logs %d'", why, n.plan.Job.ID.Job)
	}
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return fmt.Errorf("the guest agent did not report within %v (--vm-ready-timeout); see the console with 'slurmv logs %d'",
			n.plan.Job.Spec.ReadyTimeout, n.plan.Job.ID.Job)
	}
	return err
}
