//go:build noguests

package vmlaunch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric/node"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/vmnet"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vmlaunch/hypervisor"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmstep"
)

// BenchmarkNode launches and reclaims jobs of more and more VMs on one node, and does
// each part of that alone: what grows faster than the number of VMs has more ms/VM.
// Run it in a network namespace of its own: bench/scale.
func BenchmarkNode(b *testing.B) {
	for _, vms := range []int{1, 4, 16, 64, 256} {
		for _, part := range []struct {
			name    string
			measure func(*testing.B, *yard)
		}{
			{"plan", planning}, {"journal", journalling}, {"network", networking}, {"network-one-by-one", networkingOneByOne},
			{"unplug", unplugging}, {"unplug-one-by-one", unpluggingOneByOne}, {"overlay", overlays}, {"seed", seeds}, {"define", defining}, {"start", starting}, {"undefine", undefining},
			{"launch", launching}, {"launch-no-overlay", launchingWithoutOverlays}, {"reclaim", reclaiming},
		} {
			b.Run(fmt.Sprintf("%s/vms=%d", part.name, vms), func(b *testing.B) {
				part.measure(b, newYard(b, vms))
				b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N*vms), "ms/VM")
			})
		}
	}
}

// lastJob is the number of the last job that was launched; the others are number 1.
var lastJob uint32 = 1

// A yard is a node with nothing on it, and a job for it.
type yard struct {
	cfg config.Config
	job plan.Job
}

// newYard is in a directory that the job's owner can pass, on a disk: with files in
// memory the journal would cost nothing.
func newYard(b *testing.B, vms int) *yard {
	b.Helper()
	if _, err := os.Stat(filepath.Join(config.Libexec, "slurmv-guest")); err != nil || os.Geteuid() != 0 {
		b.Skip("run bench/scale as root")
	}
	dir, err := os.MkdirTemp("/var/tmp", "slurmv-scale")
	check(b, err)
	b.Cleanup(func() { check(b, os.RemoveAll(dir)) })
	image := filepath.Join(dir, "image")
	boots := append(make([]byte, 510), 0x55, 0xaa)
	check(b, errors.Join(os.Chmod(dir, 0o755), os.WriteFile(image, boots, 0o644), os.Truncate(image, 64<<20)))
	cfg := config.Default()
	cfg.Paths = config.Paths{State: filepath.Join(dir, "state"), Run: filepath.Join(dir, "run")}
	cfg.Limits.VMPerNode, cfg.QEMU.Accel = vms, config.AccelTCG
	nobody, err := user.Lookup("nobody")
	check(b, err)
	uid, err := strconv.ParseUint(nobody.Uid, 10, 32)
	check(b, err)
	work := filepath.Join(dir, "work")
	check(b, errors.Join(os.Mkdir(work, 0o700), os.Chown(work, int(uid), -1)))
	return &yard{cfg, plan.Job{
		ID: journal.ID{Job: 1}, Node: "n1", Nodes: 1, UID: uint32(uid), GID: uint32(uid), CPUs: vms,
		Spec: jobspec.Spec{VMsPerNode: vms, VCPUs: 1, MemoryMiB: 64, Image: image, ImageMode: config.ImageDirect, Network: "default",
			WorkDir: work, Mounts: []jobspec.Mount{{Host: work, Guest: work}}, ReadyTimeout: time.Hour},
	}}
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (y *yard) plan(b *testing.B) plan.Plan {
	b.Helper()
	p, err := decide(b.Context(), y.cfg, y.job)
	check(b, err)
	return p
}

// untimed does what makes the next round possible.
func untimed(b *testing.B, f func()) {
	b.Helper()
	b.StopTimer()
	f()
	b.StartTimer()
}

func planning(b *testing.B, y *yard) {
	for b.Loop() {
		y.plan(b)
	}
}

// journalling measures the journal's work for domains.
func journalling(b *testing.B, y *yard) {
	p := y.plan(b)
	for b.Loop() {
		j, err := openStore(y.cfg, y.job.Node).openJournal(b.Context(), y.job)
		check(b, err)
		for _, vm := range p.VMs {
			check(b, errors.Join(j.Intend(recordDomain, vm.UUID, vm.Domain), j.Done(recordDomain, vm.UUID)))
		}
		for _, vm := range p.VMs {
			check(b, j.Undone(recordDomain, vm.UUID))
		}
		check(b, j.Remove())
	}
}

func networking(b *testing.B, y *yard) {
	p := y.plan(b)
	for b.Loop() {
		connect(b, p, len(p.VMs))
		untimed(b, func() { check(b, vmnet.Delete(b.Context(), p.Job.ID)) })
	}
}

// networkingOneByOne is for comparison: a transaction for the filters of each tap.
func networkingOneByOne(b *testing.B, y *yard) {
	p := y.plan(b)
	for b.Loop() {
		connect(b, p, 1)
		untimed(b, func() { check(b, vmnet.Delete(b.Context(), p.Job.ID)) })
	}
}

func unplugging(b *testing.B, y *yard) {
	p := y.plan(b)
	for b.Loop() {
		untimed(b, func() { connect(b, p, len(p.VMs)) })
		check(b, vmnet.Delete(b.Context(), p.Job.ID))
	}
}

// unpluggingOneByOne is for comparison: each link is removed by itself.
func unpluggingOneByOne(b *testing.B, y *yard) {
	p := y.plan(b)
	for b.Loop() {
		untimed(b, func() { connect(b, p, len(p.VMs)) })
		for _, vm := range p.VMs {
			link, err := netlink.LinkByName(vm.Tap)
			check(b, err)
			check(b, netlink.LinkDel(link))
		}
		untimed(b, func() { check(b, vmnet.Delete(b.Context(), p.Job.ID)) })
	}
}

// connect makes the job's network with its taps, so many at once.
func connect(b *testing.B, p plan.Plan, atOnce int) {
	b.Helper()
	w := network{plan: p}
	check(b, w.createBridge(b.Context()))
	all, err := taps(p)
	check(b, err)
	for some := range slices.Chunk(all, atOnce) {
		_, err = vmnet.AddTaps(b.Context(), p.Job.ID, some...)
		check(b, err)
	}
}

func overlays(b *testing.B, y *yard) {
	eachDisk(b, y, func(p plan.Plan, vm plan.VM, image images.Info) error {
		return images.CreateOverlay(b.Context(), image, vm.Overlay, 0, p.Owner)
	})
}

func seeds(b *testing.B, y *yard) {
	eachDisk(b, y, func(p plan.Plan, vm plan.VM, _ images.Info) error {
		seed := images.Seed{InstanceID: vm.Domain, Hostname: vm.Name, GuestBinary: filepath.Join(config.Libexec, "slurmv-guest")}
		return images.WriteSeed(vm.Seed, seed, p.Owner)
	})
}

func eachDisk(b *testing.B, y *yard, create func(plan.Plan, plan.VM, images.Info) error) {
	b.Helper()
	p := y.plan(b)
	image, err := images.Inspect(b.Context(), y.cfg.Images, p.Image, p.Owner)
	check(b, err)
	for b.Loop() {
		untimed(b, func() {
			for _, vm := range p.VMs {
				check(b, errors.Join(os.RemoveAll(vm.Dir), os.MkdirAll(vm.Dir, 0o711), os.Chown(vm.Dir, int(y.job.UID), -1)))
			}
		})
		for _, vm := range p.VMs {
			check(b, create(p, vm, image))
		}
	}
}

// domains opens libvirt and returns what defines, starts and ends the VMs.
func domains(b *testing.B, y *yard) (define, start, end func()) {
	b.Helper()
	p := y.plan(b)
	dir := b.TempDir()
	driver, err := hypervisor.Open(dir, filepath.Join(dir, "cache"), filepath.Join(dir, "logs"))
	check(b, err)
	b.Cleanup(driver.Close)
	var defined []*hypervisor.Domain
	return func() {
			defined = nil
			for _, vm := range p.VMs {
				d, err := driver.Define(hypervisor.Describe(p, vm, nil))
				check(b, err)
				defined = append(defined, d)
			}
		}, func() {
			for _, d := range defined {
				check(b, d.Start())
			}
		}, func() {
			for _, d := range defined {
				d.End()
			}
		}
}

func defining(b *testing.B, y *yard) {
	define, _, end := domains(b, y)
	for b.Loop() {
		define()
		untimed(b, end)
	}
}

func starting(b *testing.B, y *yard) {
	define, start, end := domains(b, y)
	for b.Loop() {
		untimed(b, define)
		start()
		untimed(b, end)
	}
}

func undefining(b *testing.B, y *yard) {
	define, start, end := domains(b, y)
	for b.Loop() {
		untimed(b, func() { define(); start() })
		end()
	}
}

func launching(b *testing.B, y *yard) {
	for b.Loop() {
		v := y.launch(b)
		untimed(b, func() { y.reclaim(b, v) })
	}
}

// launchingWithoutOverlays starts a program in place of qemu-img that does nothing.
func launchingWithoutOverlays(b *testing.B, y *yard) {
	nothing, err := exec.LookPath("true")
	check(b, err)
	dir := filepath.Join(filepath.Dir(y.cfg.Paths.State), "bin")
	check(b, errors.Join(os.Mkdir(dir, 0o755), os.Symlink(nothing, filepath.Join(dir, "qemu-img"))))
	b.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	launching(b, y)
}

func reclaiming(b *testing.B, y *yard) {
	for b.Loop() {
		var v *VMs
		untimed(b, func() { v = y.launch(b) })
		y.reclaim(b, v)
	}
}

// launch starts the VMs and lets them know each other, as the map exchange does. Each
// time it is another job: the test driver is late to tell that a VM has ended, and the
// next one with its UUID would be taken for it.
func (y *yard) launch(b *testing.B) *VMs {
	b.Helper()
	lastJob++
	y.job.ID.Job = lastJob
	v, err := Launch(b.Context(), y.cfg, y.job, node.Tags{}, Slurmctld{}, func(vmstep.Progress) {})
	check(b, err)
	check(b, v.connect(b.Context(), []nodeagent.NodeVMs{v.Describe()}))
	return v
}

// reclaim is the reclaim at the agent's end. It also ends the test driver's domains: they
// live in this process, and in a real node they would have ended with QEMU.
func (y *yard) reclaim(b *testing.B, v *VMs) {
	b.Helper()
	v.close()
	check(b, v.journal.Close())
	check(b, Reclaim(context.Background(), y.cfg, y.job.Node, y.job.ID))
	untimed(b, func() {
		for _, m := range v.Machines {
			m.Domain.End()
		}
	})
}
