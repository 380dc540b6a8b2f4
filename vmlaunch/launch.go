package vmlaunch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric/node"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/internal/cpulist"
	"github.com/slurm-v/slurm-v/internal/emulator"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmstep"
)

// The kinds of records in a job's journal, each undone by [Reclaim].
const (
	recordFiles    = "files"     // the files beside the journal: disks, logs
	recordImage    = "image"     // the job's copies in the image cache; the cache knows which
	recordRun      = "run"       // the job's directory of sockets; libvirt's root is below it
	recordServers  = "servers"   // all servers of the job in the cloud, on all nodes, and what belongs to them
	recordNetwork  = "network"   // all links and filters of the job
	recordVFs      = "vfs"       // all VFs of the job; the pool knows which
	recordRegion   = "ivshmem"   // one region of shared memory; its name is the file's
	recordDomain   = "domain"    // one VM of ours; its name is the UUID
	recordInstance = "instance"  // one VM of nova's, which ends it; its name is QEMU's UUID
	recordAwaited  = "awaited"   // one VM that nova may start on this node; its name is the server's
	recordPages    = "hugepages" // huge pages that one VM is promised until its QEMU has them; its name is the VM's UUID
)

// Launch starts the VMs of job on this node and returns when the guest agent of each has
// reported. The caller has set up the job's tags. Launch calls progress, from several
// goroutines, as VMs pass the stages. If it fails, it gives back everything that it took.
func Launch(ctx context.Context, cfg config.Config, job plan.Job, tags node.Tags, slurm Slurmctld, progress func(vmstep.Progress)) (*VMs, error) {
	clock := machine.StartStopwatch(job.Requested)
	p, err := decide(ctx, cfg, job)
	if err != nil {
		return nil, err
	}
	s := openStore(cfg, job.Node)
	j, err := s.openJournal(ctx, job)
	if err != nil {
		return nil, err
	}
	if p, err = s.claimPages(ctx, j, p); err != nil {
		return nil, errors.Join(err, s.reclaim(context.WithoutCancel(ctx), j))
	}
	clock.Note(nodeagent.StagePlan, 0, clock.Now())
	v := newVMs(s, p, slurm, j, clock, progress)
	v.tags = tags
	if err := v.launch(ctx); err != nil {
		v.Log.Error("launch", "error", err)
		// The cause of the failure may be that ctx has ended.
		return nil, errors.Join(err, v.giveUp(context.WithoutCancel(ctx)))
	}
	return v, nil
}

// giveUp gives back everything that a launch took. When libvirt in this process notices the
// end of a QEMU, it writes to the job's directories and makes those that are missing. So
// giveUp waits until libvirt has done that, and reclaims only then.
func (v *VMs) giveUp(ctx context.Context) error {
	v.close()
	_ = endDomains(ctx, v.journal) // reclaim tries again, and reports
	for _, m := range v.Machines {
		if m.Domain != nil {
			v.backend.forget(m)
		}
	}
	return v.store.reclaim(ctx, v.journal)
}

// decide does everything that needs no lock: it checks the request and plans.
func decide(ctx context.Context, cfg config.Config, job plan.Job) (plan.Plan, error) {
	account, err := owner.Lookup(job.UID, job.GID)
	if err != nil {
		return plan.Plan{}, err
	}
	if err := job.Admit(cfg); err != nil {
		return plan.Plan{}, err
	}
	return planHere(ctx, cfg, job, account)
}

// planHere plans with the hardware of this machine.
func planHere(ctx context.Context, cfg config.Config, job plan.Job, account owner.Owner) (plan.Plan, error) {
	hw, err := offered(ctx, cfg, job)
	if err != nil {
		return plan.Plan{}, err
	}
	return plan.New(cfg, job, account, hw)
}

// ErrAlreadyRunning matches the refusal of a second set of VMs for a job.
var ErrAlreadyRunning = errors.New("are already running")

// openJournal starts the job's journal. If the job left something behind earlier, in
// another step or before it was requeued, openJournal reclaims it first, or waits until
// somebody else has. If the job's VMs still run, it returns an error. A step can lie about
// its restart count, so journals of every restart of the job count.
func (s store) openJournal(ctx context.Context, job plan.Job) (*journal.Journal, error) {
	ids, err := journal.List(s.state)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if id.Job != job.ID.Job {
			continue
		}
		if inUse(s.state, id) {
			return nil, fmt.Errorf("the VMs of job %d %w", id.Job, ErrAlreadyRunning)
		}
		if err := s.reclaimJob(ctx, id); err != nil {
			return nil, err
		}
	}
	return journal.Create(s.state, job.ID, journal.Header{
		Step: job.Step, UID: job.UID, GID: job.GID, Node: job.Node, WorkDir: job.Spec.WorkDir,
	})
}

// inUse reports whether somebody who is no reclaimer has the journal.
func inUse(state string, id journal.ID) bool {
	j, err := journal.Open(state, id)
	if err == nil {
		_ = j.Close()
	}
	var locked *journal.LockedError
	return errors.As(err, &locked) && !isReclaimer(locked.Holder.PID)
}

// launch prepares everything that the VMs share, and then starts them, as many at once as
// the node can take.
func (v *VMs) launch(ctx context.Context) error {
	if err := v.makeDirs(); err != nil {
		return err
	}
	if err := v.Open(v.Plan.State); err != nil {
		return err
	}
	logPinning(v.Plan, v.Log)
	logPages(v.Plan, v.Log)
	image, err := v.prepare(ctx)
	if err == nil {
		err = v.warmer.chooseStart(ctx, image)
	}
	if err == nil {
		err = v.startMachines(ctx, image)
	}
	v.up = v.Clock.Now()
	return errors.Join(err, v.recordStages())
}

// prepare makes everything that the VMs share, all at once: image, network, VFs, leases of
// shared memory.
func (v *VMs) prepare(ctx context.Context) (image images.Info, err error) {
	for _, m := range v.Machines {
		m.Tell(nodeagent.StageImage)
	}
	shared, ctx := errgroup.WithContext(ctx)
	if v.Plan.Measure.NoOverlap {
		shared.SetLimit(1)
	}
	atOnce := func(stage string, do func() error) {
		shared.Go(func() error { return v.Clock.During(stage, do) })
	}
	var uefi emulator.UEFI
	shared.Go(func() error { return v.links.askHosts(ctx) })
	atOnce(nodeagent.StageImage, func() (err error) {
		image, uefi, err = v.backend.image(ctx)
		return err
	})
	atOnce(nodeagent.StageTaps, func() error { return v.backend.network(ctx) })
	atOnce(nodeagent.StageVF, func() error { return v.backend.vfs(ctx) })
	atOnce(nodeagent.StageLibvirt, func() error { return v.backend.open(ctx) })
	shared.Go(func() error { return v.readUserData(ctx) })
	patience := v.Plan.Job.Spec.ReadyTimeout
	shared.Go(func() error { return serveWithin(ctx, patience, v.directories.serve) })
	shared.Go(func() error { return serveWithin(ctx, patience, v.wayOut.serve) })
	shared.Go(func() error { return v.shared.lease(ctx) })
	err = shared.Wait()
	v.Plan.UEFI = uefi // and not earlier: the functions above read the plan
	return image, err
}

// startMachines starts the VMs, while the memory that they are to share is being
// allocated.
func (v *VMs) startMachines(ctx context.Context, image images.Info) error {
	each, ctx := errgroup.WithContext(ctx)
	regions := func() error {
		return v.Clock.During(nodeagent.StageIVShmem, func() error { return v.shared.make(ctx) })
	}
	each.Go(func() error { return v.backend.request(ctx, image) })
	if !v.Plan.Measure.NoOverlap {
		each.Go(regions)
	} else if err := regions(); err != nil {
		return err
	}
	turns := newTurns(v.Plan, runtime.NumCPU(), v.busyGuests(), len(v.Machines))
	for _, m := range v.Machines {
		each.Go(func() error {
			turn, err := turns.take(ctx, m)
			if err != nil {
				return err
			}
			defer turn.end()
			if err := v.startMachine(ctx, m, turn, image); err != nil {
				m.Enter(nodeagent.StateFailed)
				return fmt.Errorf("%s: %w", m.Plan.Name, err)
			}
			return nil
		})
	}
	return each.Wait()
}

// makeDirs makes the job's directories. The outer ones are root's: the owner can pass
// through them to the VMs' directories, but cannot list them.
func (v *VMs) makeDirs() error {
	if err := errors.Join(
		v.journal.Intend(recordFiles, v.Plan.State, nil),
		v.journal.Intend(recordRun, v.Plan.Run, nil)); err != nil {
		return err
	}
	if err := makeRunDirs(v.Plan); err != nil {
		return err
	}
	for _, vm := range v.Plan.VMs {
		if err := os.MkdirAll(vm.Dir, 0o700); err != nil {
			return err
		}
		if err := os.Chown(vm.Dir, int(v.Plan.Owner.UID), int(v.Plan.Owner.GID)); err != nil {
			return err
		}
	}
	return errors.Join(
		os.Chmod(v.Plan.State, 0o711),
		v.journal.Done(recordFiles, v.Plan.State),
		v.journal.Done(recordRun, v.Plan.Run))
}

// makeRunDirs makes the directories of sockets. The owner can pass through to the agent's
// socket. QEMU, which has the owner's group, can pass through to its files in libvirt's
// directory.
func makeRunDirs(p plan.Plan) error {
	libvirt := filepath.Join(p.Run, "libvirt")
	return errors.Join(
		os.MkdirAll(p.Run, 0o711),
		os.MkdirAll(p.Ports(), 0o700),
		os.MkdirAll(libvirt, 0o710),
		os.Chown(libvirt, 0, int(p.Owner.GID)))
}

// startMachine takes one VM from nothing to ready: from the template, if there is one, else
// by booting. If restoring fails, it boots the VM, unless the user wants restored VMs only
// (--vm-start=warm).
func (v *VMs) startMachine(ctx context.Context, m *machine.Machine, t turn, image images.Info) error {
	if v.warmer.from == nil {
		return v.bootMachine(ctx, m, t, image)
	}
	err := v.warmer.restoreMachine(ctx, m, image)
	switch {
	case err == nil:
		m.Enter(nodeagent.StateReady)
	case ctx.Err() == nil && v.Plan.Job.Spec.Start != config.StartWarm:
		v.Log.Warn("VM is booted, not restored", "vm", m.Plan.Name, "reason", err)
		return v.bootMachine(ctx, m, t, image)
	}
	return err
}

// bootMachine takes one VM from nothing to ready by booting.
func (v *VMs) bootMachine(ctx context.Context, m *machine.Machine, t turn, image images.Info) error {
	if err := v.backend.start(ctx, m, image); err != nil {
		return err
	}
	m.Enter(nodeagent.StageBoot)
	wait, cancel := withPatienceFor(ctx, m, v.Plan.Job.Spec.ReadyTimeout)
	defer cancel()
	go t.watch(wait, m.Domain.Demand)
	if err := v.meetGuest(wait, m); err != nil {
		logSilence(wait, v.Log, m)
		return explainBoot(wait, v.Plan, m, err)
	}
	m.Enter(nodeagent.StateReady)
	return nil
}

// logSilence logs twice what QEMU's threads do whose guest has not reported in time. A slow
// guest computes meanwhile, a guest that hangs computes all the time or not at all. It does
// not ask QEMU, which may hang itself.
func logSilence(ctx context.Context, log *slog.Logger, m *machine.Machine) {
	if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return
	}
	for range 2 {
		threads, err := m.Domain.Threads()
		log.Warn("the guest is silent", "vm", m.Plan.Name, "threads", threads, "error", err)
		time.Sleep(time.Second)
	}
}

// endPatience is how long libvirt may take to tell of the end of a VM: the VM's channel ends before.
const endPatience = 2 * time.Second

// explainBoot says what users can do if a guest does not report. ctx is that of withPatienceFor, which ends with the VM.
func explainBoot(ctx context.Context, p plan.Plan, m *machine.Machine, err error) error {
	select {
	case <-ctx.Done():
	case <-time.After(endPatience):
	}
	if why := m.StopReason(); why != "" {
		return fmt.Errorf("the VM %s before its guest agent reported; see its console with 'slurmv logs %d'", why, p.Job.ID.Job)
	}
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return fmt.Errorf("the guest agent did not report within %v; the VM boots by %s. Raise --vm-ready-timeout or try another --vm-firmware; see the console with 'slurmv logs %d'",
			p.Job.Spec.ReadyTimeout, p.BootsBy(), p.Job.ID.Job)
	}
	return err
}

// logPinning logs on which CPUs the VMs will run.
func logPinning(p plan.Plan, log *slog.Logger) {
	if p.Unpinned != "" {
		log.Info("vCPUs are not pinned", "reason", p.Unpinned)
		return
	}
	for _, vm := range p.VMs {
		log.Info("pinned", "vm", vm.Name, "cpus", cpulist.Format(vm.Pinning.CPUs()), "emulator", cpulist.Format(vm.Pinning.Emulator))
	}
}
