package node

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/slurm-v/slurm-v/internal/durable"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
)

// noteNobody writes the file of variables of jobs without tags, once in a boot, if jobs can have
// tags; else there is none, and the plugin changes no job.
func (r records) noteNobody(ctx context.Context, tags bool, client slurm.Comments) error {
	path := filepath.Join(r.dir, "environment")
	if !tags {
		return durable.Remove(path)
	}
	boot, err := journal.BootID()
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(old), "boot "+boot+"\n") {
		return nil
	}
	conf, err := client.Conf(ctx)
	if err != nil {
		return err
	}
	if err := durable.MakeDirs(r.dir, 0o711); err != nil {
		return err
	}
	return durable.WriteFile(path, []byte(forNobody(boot, conf.HasSlingshotSwitch())))
}
