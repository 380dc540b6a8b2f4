package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/slurm"
)

// Open returns the controller of the site and cluster of this process. Root becomes the owner
// of the ledger's directory, SlurmUser: all its files must stay that user's.
func Open(ctx context.Context, cfg config.Config, warn func(sentence string)) (*Controller, error) {
	c, err := newController(ctx, cfg, warn)
	if err != nil {
		return nil, err
	}
	if c.Cluster = os.Getenv(slurm.EnvCluster); c.Cluster == "" {
		conf, err := c.Slurm.Conf(ctx)
		if err != nil {
			return nil, err
		}
		c.Cluster = conf["ClusterName"]
	}
	return c, become(c.Dir)
}

// become makes root the owner of a directory.
func become(dir string) error {
	var stat unix.Stat_t
	switch err := unix.Stat(dir, &stat); {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%s is not there: run this on a controller, as SlurmUser or root", dir)
	case err != nil:
		return fmt.Errorf("stat %s: %w", dir, err)
	}
	if os.Geteuid() != 0 || stat.Uid == 0 {
		return nil
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(int(stat.Gid)), syscall.Setuid(int(stat.Uid))); err != nil {
		return fmt.Errorf("become the owner of %s, user %d: %w", dir, stat.Uid, err)
	}
	return nil
}
