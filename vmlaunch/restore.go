package vmlaunch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"

	"github.com/google/uuid"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/sshkey"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm/cgroup"
	"github.com/slurm-v/slurm-v/vmlaunch/hypervisor"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// restoreMachine takes one VM from a template to ready. If it fails, it leaves nothing of
// the VM, which can then be booted.
func (w *warmer) restoreMachine(ctx context.Context, m *machine.Machine, image images.Info) error {
	err := w.restore(ctx, m, image)
	if err == nil {
		return m.Restored()
	}
	m.EndSession()
	m.CloseConsole()
	return errors.Join(err, w.endDomain(m), removeIfThere(m.Plan.Overlay), removeIfThere(m.Plan.Vars), m.Restored())
}

func (w *warmer) restore(ctx context.Context, m *machine.Machine, image images.Info) error {
	m.Restoring()
	m.Enter(nodeagent.StageDisk)
	if err := images.CopyFor(w.from.Blank(), m.Plan.Overlay, w.Plan.Owner); err != nil {
		return err
	}
	m.Plan.Base = append([]images.Layer{{Path: w.from.Disk(), Format: images.QCOW2}}, image.Layers()...)
	if err := makeVars(w.Plan, m.Plan); err != nil {
		return err
	}
	m.Enter(nodeagent.StageRestore)
	if err := w.restoreDomain(ctx, m); err != nil {
		return err
	}
	if err := m.Domain.PlugVFs(m.VFs); err != nil {
		return err
	}
	wait, cancel := withPatienceFor(ctx, m, w.Plan.Job.Spec.ReadyTimeout)
	defer cancel()
	if err := w.meetGuest(wait, m); err != nil {
		return explainBoot(wait, w.Plan, m, err)
	}
	return nil
}

// restoreDomain writes the domain into the journal and only then makes libvirt restore it. A
// template that libvirt cannot restore is spoilt, unless the job had too little memory.
func (w *warmer) restoreDomain(ctx context.Context, m *machine.Machine) (err error) {
	if err := w.journal.Intend(recordDomain, m.Plan.UUID, m.Plan.Domain); err != nil {
		return err
	}
	if m.Domain, err = w.driver.Restore(w.Plan, m.Plan, *w.from, m.VFs); err != nil {
		if cgroup.OutOfMemory("/", os.Getpid()) { // QEMU is in the cgroup of this process
			return err
		}
		return errors.Join(err, w.store.templates.Spoil(ctx, *w.from))
	}
	return w.domainStarted(m)
}

// endDomain ends a domain that will not be used, as far as it was started, and takes it off
// the journal.
func (v *VMs) endDomain(m *machine.Machine) error {
	if m.Domain != nil {
		m.Domain.End()
		m.Domain = nil
	}
	begun := func(r journal.Record) bool { return r.Kind == recordDomain && r.Name == m.Plan.UUID }
	if !slices.ContainsFunc(v.journal.Held(), begun) {
		return nil
	}
	return hypervisor.Kill(context.Background(), []string{m.Plan.UUID}, func(uuid string) error {
		return v.journal.Undone(recordDomain, uuid)
	})
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// renew changes a restored guest's setup so that the VM becomes a machine of its own, and
// sets the guest's clock, which stood still since the template was saved.
func renew(ctx context.Context, m *machine.Machine, s *guest.Setup, log *slog.Logger) (err error) {
	trip, err := m.Session().SetClock(ctx)
	if err != nil {
		return err
	}
	log.Info("clock set", "vm", m.Plan.Name, "trip", trip)
	s.GrowRoot = false // the template has done it
	s.NICs[0].Before = plan.TemplateMAC
	s.Fresh, err = newIdentity(m.Plan.Name)
	return err
}

// newIdentity makes the random seed, ids and host key that distinguish a restored VM from
// its template.
func newIdentity(name string) (*guest.Identity, error) {
	key, err := sshkey.New(name)
	if err != nil {
		return nil, err
	}
	id := &guest.Identity{Seed: make([]byte, 64), BootID: uuid.NewString(), HostKey: key.Private, HostKeyPublic: key.Public}
	machine := make([]byte, 16)
	_, _ = io.ReadFull(rand.Reader, machine) // never fails
	_, _ = io.ReadFull(rand.Reader, id.Seed)
	id.MachineID = hex.EncodeToString(machine)
	return id, nil
}
