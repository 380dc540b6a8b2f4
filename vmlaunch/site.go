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
	"strings"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vmstep"
)

// siteUID is who runs QEMU when root makes a template. No account may have it, nor any
// process: whoever has the same uid can write to the memory of the VM, which all users
// get. That rules out the user nobody, who also runs daemons. systemd leaves these
// numbers unused (UIDS-GIDS), and SSSD's automatic ones end at 2000200000.
const siteUID = 2100000000

// siteOwner is that user. The group is the image's.
func siteOwner(gid uint32) (Owner, error) {
	account, err := user.LookupId(strconv.Itoa(siteUID))
	if err == nil {
		return Owner{}, fmt.Errorf("templates for all users are made with uid %d, which must be nobody's, and %s has it in this node's user database: give that account another one", siteUID, account.Username)
	}
	if !errors.As(err, new(user.UnknownUserIdError)) {
		return Owner{}, fmt.Errorf("look up uid %d: %w", siteUID, err)
	}
	o := Owner{Name: "slurmv-template", UID: siteUID, GID: gid, Home: "/", Shell: "/bin/sh"}
	o.Groups = []Group{lookupGroup(strconv.FormatUint(uint64(gid), 10))}
	return o, nil
}

// refuseOthers fails if a process below proc has that uid, by whatever right.
func refuseOthers(proc string, uid uint32) error {
	dirs, err := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		status, _ := os.ReadFile(filepath.Join(dir, "status")) // it may have ended
		if slices.Contains(uidsOf(string(status)), strconv.FormatUint(uint64(uid), 10)) {
			return fmt.Errorf("process %s runs with uid %d, which only the making of templates may have: end it", filepath.Base(dir), uid)
		}
	}
	return nil
}

// uidsOf returns the real, effective, saved and file system uid of /proc/PID/status.
func uidsOf(status string) []string {
	_, rest, _ := strings.Cut(status, "\nUid:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.Fields(line)
}

// siteWork is the journal of the making of a template by root; no job has the number.
var siteWork = journal.ID{}

// MakeSiteTemplate makes a template of an image of the catalogue for VMs like those of
// spec, for all users who may read the image, and returns where it is. It needs no job,
// and takes the CPUs and the memory of one VM.
func MakeSiteTemplate(ctx context.Context, cfg config.Config, node string, spec jobspec.Spec, progress func(vmstep.Progress)) (dir string, err error) {
	path, err := images.Resolve(cfg, spec.Image)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	owner, err := siteOwner(groupOf(info))
	if err != nil {
		return "", err
	}
	job := Job{
		ID: siteWork, Node: node, Nodes: 1, UID: owner.UID, GID: owner.GID, Spec: spec,
		CPUs: spec.VMsPerNode * spec.VCPUs,
	}
	plan, err := decideFor(cfg, job, owner)
	if err != nil {
		return "", err
	}
	plan.Site = true
	clock := startStopwatch(job.Requested)
	j, err := openJournal(ctx, cfg, job)
	if err != nil {
		return "", fmt.Errorf("is another template being made? %w", err)
	}
	n := newNode(plan, j, clock, progress)
	err = n.makeSiteTemplate(ctx, cfg)
	n.close()
	if n.from != nil {
		dir = n.from.Dir
	}
	return dir, errors.Join(err, reclaim(context.WithoutCancel(ctx), cfg, j))
}

func (n *Node) makeSiteTemplate(ctx context.Context, cfg config.Config) error {
	if err := refuseOthers("/proc", n.plan.Owner.UID); err != nil {
		return err
	}
	if err := errors.Join(n.makeDirs(), n.openLog()); err != nil {
		return err
	}
	image, err := n.prepare(ctx, cfg)
	if err != nil {
		return err
	}
	return n.getTemplate(ctx, cfg, image)
}
