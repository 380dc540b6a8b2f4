package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/slurm-v/slurm-v/bench/stats"
	"github.com/slurm-v/slurm-v/internal/report"
)

// A figure is one way to access a large image, for one VM on one node.
type figure struct {
	Way    string               `json:"way"`
	Rounds []launch             `json:"rounds"`
	Stages []map[string]float64 `json:"stages"` // seconds in each stage, by round
}

func (f figure) seconds() float64 {
	return medianOf(f.Rounds, func(l launch) float64 { return l.Seconds })
}

func (f figure) stage(name string) float64 {
	return medianStage(f.Stages, name)
}

func medianStage(rounds []map[string]float64, name string) float64 {
	var values []float64
	for _, s := range rounds {
		values = append(values, s[name])
	}
	return stats.Median(values)
}

const (
	imageMB = 2200 // size of the image's file
	linkMB  = 119  // MiB/s of the file server: the most that 1 Gb/s Ethernet carries
)

// ways are those of the paper's Figures 5 and 6, and newer ones. Caches are emptied
// before each round.
var ways = []struct {
	name, options, site string
	again               bool // keep what an earlier job has left on the node
	rounds              int
}{
	{"copy", "--vm-image-mode=copy --vm-start=cold", "[measure]\nno_overlap = true\n", false, 5},
	{"copy, overlapped", "--vm-image-mode=copy --vm-start=cold", "", false, 5},
	{"cache, first job", "--vm-image-mode=cache --vm-start=cold", "", false, 3},
	{"snapshot, direct", "--vm-image-mode=direct --vm-start=cold", "", true, 5},
	{"snapshot, cache", "--vm-image-mode=cache --vm-start=cold", "", true, 5},
	{"warm", "--vm-image-mode=cache --vm-start=warm", "", true, 5},
}

func measureFigures(ctx context.Context, b *bench, r *results) error {
	image, err := guestImage(ctx, b, "large", growBy, imageMB)
	if err != nil {
		return err
	}
	c, err := up(ctx, shape{nodes: 1, cpus: 8, rate: fmt.Sprintf("%dM", linkMB)})
	if err != nil {
		return err
	}
	shared, err := c.share(ctx, image)
	if err != nil {
		return err
	}
	r.Figures = nil
	for _, way := range ways {
		f := figure{Way: way.name}
		if err := c.configure(way.site); err != nil {
			return err
		}
		one := job{nodes: 1, vms: 1, options: []string{way.options, "--vm-image=" + shared, "--sriov=1", "--ivshmem=1"}}
		if way.again {
			if _, err := c.launch(ctx, one); err != nil {
				return err
			}
		}
		for range b.rounds(way.rounds) {
			if err := c.forget(ctx, way.again); err != nil {
				return err
			}
			l, err := c.launch(ctx, one)
			if err != nil {
				return err
			}
			b.say("%s: %.2f s", way.name, l.Seconds)
			f.Rounds, f.Stages = append(f.Rounds, l), append(f.Stages, l.stages())
		}
		r.Figures = append(r.Figures, f)
	}
	return nil
}

// stages returns the median of each stage over the launch's VMs.
func (l launch) stages() map[string]float64 {
	all := map[string]float64{}
	for _, row := range report.Rows(l.nodes) {
		all[row.Stage] = row.Median.Seconds()
	}
	return all
}

// share puts a file on the cluster's file server and returns its path on the nodes. It
// waits until the file is old enough: nodes do not cache files that have just changed.
func (c *cluster) share(ctx context.Context, file string) (string, error) {
	const name = "image.qcow2"
	_, err := output(ctx, "cp", "--sparse=always", "--preserve=timestamps", file, filepath.Join(c.dir, "server", name))
	time.Sleep(3 * time.Second)
	return filepath.Join(c.dir, "shared", name), err
}

// forget empties the page cache, which holds files that the nodes have read, and the
// node's cache of images unless keep is set.
func (c *cluster) forget(ctx context.Context, keep bool) error {
	if !keep {
		if _, err := script(ctx, "run", "--user", "root", "--node", "n1", "--", "slurmv", "image", "forget", "--all"); err != nil {
			return err
		}
	}
	_ = exec.CommandContext(ctx, "sync").Run()
	return os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0o644)
}
