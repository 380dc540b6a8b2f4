package vmlaunch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/internal/process"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmstep"
)

// siteUID is the uid of QEMU when root makes a template. No account and no process may have
// it: whoever has the same uid can write to the memory of the VM, which all users get. So
// it cannot be the user nobody, who also runs daemons. systemd leaves these numbers unused
// (UIDS-GIDS), and SSSD's automatic ones end at 2000200000.
const siteUID = 2100000000

// siteOwner is the user with siteUID. gid, the image's group, lets QEMU read the image.
func siteOwner(gid uint32) (owner.Owner, error) {
	account, err := user.LookupId(strconv.Itoa(siteUID))
	if err == nil {
		return owner.Owner{}, fmt.Errorf("templates for all users are made with uid %d, which no account may have, but %s has it in this node's user database: give that account another uid", siteUID, account.Username)
	}
	if !errors.As(err, new(user.UnknownUserIdError)) {
		return owner.Owner{}, fmt.Errorf("look up uid %d: %w", siteUID, err)
	}
	o := owner.Owner{Name: "slurmv-template", UID: siteUID, GID: gid, Home: "/", Shell: "/bin/sh"}
	o.Groups = []owner.Group{owner.LookupGroup(strconv.FormatUint(uint64(gid), 10))}
	return o, nil
}

// refuseOthers fails if a process below proc has uid as its real, effective, saved or
// file-system uid.
func refuseOthers(proc string, uid uint32) error {
	dirs, err := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		status, _ := os.ReadFile(filepath.Join(dir, "status")) // it may have ended
		if slices.Contains(process.ParseStatus(string(status))["Uid"], strconv.FormatUint(uint64(uid), 10)) {
			return fmt.Errorf("process %s runs with uid %d, which only the making of templates may have: end it", filepath.Base(dir), uid)
		}
	}
	return nil
}

// siteWork is the id of the journal in which root's making of a template is recorded; no
// job has the number 0.
var siteWork = journal.ID{}

// MakeSiteTemplate makes a template of an image of the catalogue, for VMs like those of
// spec. All users who may read the image can use it. It returns the template's directory.
// It needs no job, and takes the CPUs and the memory of one VM. spec comes from root, who
// made it with [jobspec.ParseIn] and cfg, so it is not validated again.
func MakeSiteTemplate(ctx context.Context, cfg config.Config, node string, spec jobspec.Spec, progress func(vmstep.Progress)) (dir string, err error) {
	path, err := images.Resolve(cfg, spec.Image)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	account, err := siteOwner(groupOf(info))
	if err != nil {
		return "", err
	}
	job := plan.Job{ID: siteWork, Node: node, Nodes: 1, UID: account.UID, GID: account.GID, Spec: spec}
	p, err := planSite(ctx, cfg, job, account)
	if err != nil {
		return "", err
	}
	return openStore(cfg, node).makeSiteTemplate(ctx, p, progress)
}

// planSite plans for a VM like that of a job which has the node to itself. Root's own process
// is in no job and has no cores, but jobs' VMs that lie otherwise than the template's have no
// use for it.
func planSite(ctx context.Context, cfg config.Config, job plan.Job, account owner.Owner) (plan.Plan, error) {
	hw, err := offered(ctx, cfg, job)
	if err == nil && !hw.Foreign {
		hw.CPUs, hw.Unpinned, err = jobsCPUs(ctx, slurm.Client{Bin: cfg.Slurm.Bin}, "/")
	}
	if err != nil {
		return plan.Plan{}, err
	}
	p, err := plan.New(cfg, job, account, hw)
	p.Site = true
	return p, err
}

func (s store) makeSiteTemplate(ctx context.Context, p plan.Plan, progress func(vmstep.Progress)) (dir string, err error) {
	clock := machine.StartStopwatch(time.Time{})
	j, err := s.openJournal(ctx, p.Job)
	if err != nil {
		return "", fmt.Errorf("is another template being made? %w", err)
	}
	v := newVMs(s, p, Slurmctld{}, j, clock, progress)
	err = v.makeSiteTemplate(ctx)
	v.close()
	if v.warmer.from != nil {
		dir = v.warmer.from.Dir
	}
	return dir, errors.Join(err, s.reclaim(context.WithoutCancel(ctx), j))
}

func (v *VMs) makeSiteTemplate(ctx context.Context) error {
	if err := refuseOthers("/proc", v.Plan.Owner.UID); err != nil {
		return err
	}
	if err := errors.Join(v.makeDirs(), v.Open(v.Plan.State)); err != nil {
		return err
	}
	image, err := v.prepare(ctx)
	if err != nil {
		return err
	}
	return v.warmer.getTemplate(ctx, image)
}

// groupOf returns the gid of a file.
func groupOf(info os.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Gid }
