// Command script does what slurmctld's scripts do for a job, for a test that kills it: script
// reserve|release|sweep CONFIG. Unlike slurmv-fabric, it starts nothing in the background.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/controller"
	"github.com/slurm-v/slurm-v/slurm"
)

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, what, path string) error {
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	c, err := controller.Open(ctx, cfg, func(sentence string) { fmt.Fprintln(os.Stderr, sentence) })
	if err != nil {
		return err
	}
	if what == "sweep" {
		_, err = c.Sweep(ctx)
		return err
	}
	h, err := slurm.HookOf(os.Getenv)
	if err != nil {
		return err
	}
	if what == "release" {
		return c.Release(ctx, h)
	}
	w, err := fabric.ParseWish(os.Getenv(fabric.WishVariable))
	if err == nil {
		_, err = c.Reserve(ctx, h, w)
	}
	return err
}
