package vmlaunch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/images/template"
)

// stageTemplate is when a template is looked for, and made where there is none.
const stageTemplate = "template"

// chooseStart decides whether the VMs are restored from a template, which is made first
// if the user or the site wants that, or booted.
func (n *Node) chooseStart(ctx context.Context, cfg config.Config, image images.Info) error {
	start := n.plan.Job.Spec.Start
	if start == config.StartCold {
		return nil
	}
	err := n.clock.during(stageTemplate, func() error { return n.getTemplate(ctx, cfg, image) })
	switch {
	case err == nil:
		n.log.Info("VMs are restored", "template", n.from.Dir)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case start == config.StartWarm:
		return fmt.Errorf("no VM can be restored (--vm-start=warm): %w", err)
	default:
		n.log.Info("VMs are booted, not restored", "reason", err)
	}
	return nil
}

// getTemplate finds the template that the VMs are restored from, or makes it.
func (n *Node) getTemplate(ctx context.Context, cfg config.Config, image images.Info) error {
	if why := n.plan.coldBecause(cfg); why != "" {
		return errors.New(why)
	}
	shape, err := n.shape(ctx, cfg, image)
	if err != nil {
		return err
	}
	n.templates = openTemplates(cfg, n.plan.Job.Node)
	err = n.findTemplate(ctx, shape)
	if errors.Is(err, template.ErrNone) {
		err = n.newTemplate(ctx, cfg, shape, image, err)
	}
	return err
}

// newTemplate gets the owner a template where he has none: a copy of that for all, or one
// of his own if he or the site wants that. Else the error is none.
func (n *Node) newTemplate(ctx context.Context, cfg config.Config, shape template.Shape, image images.Info, none error) error {
	if n.plan.Catalogue && !n.plan.Site {
		err := n.adoptTemplate(ctx, shape)
		if err == nil {
			return n.findTemplate(ctx, shape)
		}
		if !errors.Is(err, template.ErrNone) {
			return err
		}
	}
	if n.plan.Job.Spec.Start != config.StartWarm && !cfg.Warm.Automatic {
		return none
	}
	if err := n.makeTemplate(ctx, cfg, shape, image); err != nil {
		return fmt.Errorf("make a template: %w", err)
	}
	return n.findTemplate(ctx, shape)
}

// coldBecause says why this node can only boot the VMs; "" if it need not.
func (p Plan) coldBecause(cfg config.Config) string {
	cells := func(vm VMPlan) bool { return len(vm.Pinning.Cells) > 1 }
	switch {
	case p.Hardware.HugePage != 0:
		return "the VMs' memory is of huge pages, and a template's is not"
	case slices.ContainsFunc(p.VMs, cells):
		return "a VM has CPUs of several NUMA nodes, and a template has one"
	case p.pciHole() != 0:
		return "the shared memory needs more address space than a template has"
	}
	return p.Job.Spec.ColdBecause(cfg)
}

// findTemplate finds the template that the VMs are restored from.
func (n *Node) findTemplate(ctx context.Context, shape template.Shape) error {
	t, err := n.claimTemplate(ctx, n.templateOwner(), shape)
	if err == nil {
		n.from = &t
	}
	return err
}

// claimTemplate finds a template and writes down that the job uses it.
func (n *Node) claimTemplate(ctx context.Context, whose template.Whose, shape template.Shape) (template.Template, error) {
	return n.templates.Find(ctx, whose, shape, func(t template.Template) error {
		return n.journal.Intend(template.Claim, t.Dir, nil)
	})
}

// shape is what VMs of the job have in common with those that they could be restored
// from.
func (n *Node) shape(ctx context.Context, cfg config.Config, image images.Info) (template.Shape, error) {
	files, err := image.Identities(ctx, n.owner())
	if err != nil {
		return template.Shape{}, err
	}
	agent, err := images.Identify(guestBinary())
	if err != nil {
		return template.Shape{}, err
	}
	spec := n.plan.Job.Spec
	return template.Shape{
		Image: files, DiskMiB: spec.DiskMiB, VCPUs: spec.VCPUs, Memory: spec.MemoryMiB,
		Machine: n.plan.QEMU.Machine, Accel: n.plan.Hardware.Accel, CPU: n.plan.cpuModel("/"),
		Emulator: n.plan.QEMU.Emulator, QEMU: n.versions,
		Mounts: cfg.Warm.MountSlots, Devices: cfg.Warm.DeviceSlots,
		Version: config.Version, Guest: agent,
	}, nil
}

// cpuModel names what the VMs' processors are like; for the host's own, by what the
// kernel below root says of it.
func (p Plan) cpuModel(root string) string {
	cpu := p.cpu()
	if cpu.Model != nil {
		return cpu.Model.Value
	}
	info, _ := os.ReadFile(filepath.Join(root, "proc/cpuinfo"))
	sum := sha256.New()
	for _, key := range []string{"model name", "stepping", "microcode", "flags"} {
		fmt.Fprintln(sum, cpuField(string(info), key))
	}
	return cpu.Mode + " " + hex.EncodeToString(sum.Sum(nil)[:8])
}

// openTemplates opens the node's templates.
func openTemplates(cfg config.Config, node string) *template.Store {
	return template.Open(cfg.StateDir(node), int64(cfg.Warm.Size)<<20)
}

// cpuField returns the first value of key in the text of /proc/cpuinfo.
func cpuField(info, key string) string {
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
