package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// The paper's three designs: who starts the VMs of a job.
const (
	taskBased     = "tasks"     // a task of the job's own for each VM, without a plugin
	overLibvirt   = "libvirt"   // the plugin's agent on the node
	overOpenStack = "OpenStack" // nova, asked by the agent
)

// A designPoint is a number of VMs on one node, started by one design.
type designPoint struct {
	Design string   `json:"design"`
	VMs    int      `json:"vms"`
	Rounds []launch `json:"rounds"`
}

// seconds returns the median of the rounds.
func (p designPoint) seconds() float64 {
	return medianOf(p.Rounds, func(l launch) float64 { return l.Seconds })
}

// cpuOfEach returns the median CPU time for each VM.
func (p designPoint) cpuOfEach() float64 {
	return medianOf(p.Rounds, func(l launch) float64 { return l.CPU }) / float64(p.VMs)
}

// controllerOfEach returns what of that the controllers' host takes.
func (p designPoint) controllerOfEach() float64 {
	return medianOf(p.Rounds, func(l launch) float64 { return l.Controller }) / float64(p.VMs)
}

var designVMs = []int{1, 2, 4}

func measureDesigns(ctx context.Context, b *bench, r *results) error {
	one := shape{nodes: 1, cpus: 8}
	c, err := up(ctx, one)
	if err != nil {
		return err
	}
	tasks, err := c.captureTask(ctx)
	if err != nil {
		return err
	}
	plugin := func(vms int) (launch, error) {
		return c.launch(ctx, cold(1, vms))
	}
	r.Designs = nil
	for _, vms := range designVMs {
		if err := b.measureDesign(r, taskBased, vms, tasks); err != nil {
			return err
		}
		if err := b.measureDesign(r, overLibvirt, vms, plugin); err != nil {
			return err
		}
	}
	if c, err = upInCloud(ctx, one); err != nil {
		return err
	}
	for _, vms := range designVMs {
		if err := b.measureDesign(r, overOpenStack, vms, plugin); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) measureDesign(r *results, design string, vms int, start func(vms int) (launch, error)) error {
	p := designPoint{Design: design, VMs: vms}
	for range b.rounds(5) {
		l, err := start(vms)
		if err != nil {
			return fmt.Errorf("%d VMs by %s: %w", vms, design, err)
		}
		b.say("%d VMs by %s: %.2f s, %.2f s of CPU", vms, design, l.Seconds, l.CPU)
		p.Rounds = append(p.Rounds, l)
	}
	r.Designs = append(r.Designs, p)
	return b.save()
}

// captureTask returns what starts VMs by srun: each task makes a disk, starts QEMU, and ends when the guest is set up. The
// guests are like those of the plugin.
func (c *cluster) captureTask(ctx context.Context) (start func(vms int) (launch, error), err error) {
	same, err := c.captureOne(ctx)
	if err != nil {
		return nil, err
	}
	for i, a := range same.Args {
		same.Args[i] = strings.ReplaceAll(a, `"ifname":"bench0"`, `"ifname":"bench%d"`) // the kernel gives each a number
	}
	self, file, err := c.installBare(same)
	return func(vms int) (launch, error) { return c.runTasks(ctx, vms, self, file) }, err
}

// runTasks returns the time of the srun.
func (c *cluster) runTasks(ctx context.Context, vms int, self, file string) (l launch, err error) {
	since, err := cpuUse(ctx)
	if err != nil {
		return launch{}, err
	}
	command := fmt.Sprintf("begun=$EPOCHREALTIME; srun -Q -N1 -n%d --mem-per-cpu=384M --cpu-bind=none %s bare %s >/dev/null || exit; echo $begun $EPOCHREALTIME", vms, self, file)
	times, err := script(ctx, "run", "--user", "root", "--node", "n1", "--", "bash", "-c", command)
	if err != nil {
		return launch{}, err
	}
	err = since(&l)
	begun, ended, _ := strings.Cut(times, " ")
	from, err1 := strconv.ParseFloat(begun, 64)
	to, err2 := strconv.ParseFloat(ended, 64)
	l.Seconds = to - from
	return l, errors.Join(err, err1, err2)
}

// upInCloud makes a cluster whose VMs are OpenStack's, in place of any other. Its first VM brings the image to the node.
func upInCloud(ctx context.Context, s shape) (*cluster, error) {
	if err := os.Setenv("SLURMV_BACKEND", "openstack"); err != nil {
		return nil, err
	}
	defer os.Unsetenv("SLURMV_BACKEND")
	c, err := start(ctx, s)
	if err != nil {
		return nil, err
	}
	if out, err := exec.CommandContext(ctx, "scripts/openstack", "up").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("scripts/openstack up: %w\n%s", err, out)
	}
	_, err = c.launch(ctx, cold(s.nodes, 1))
	return c, err
}

func reportDesigns(t *strings.Builder, points []designPoint) {
	t.WriteString(`## Tasks, libvirt, OpenStack

The paper's three designs, on one node: a task of the user's for each VM, without a plugin
(here srun starts qemu-img and QEMU, and ends when all guests are set up); the plugin with
libvirt; the plugin with OpenStack. The first knows nothing of shared memory, VFs, networks,
limits, logs, or of what is left when a task is killed.

| VMs | tasks, s | libvirt, s | OpenStack, s | CPU for each VM: tasks, s | libvirt, s | OpenStack, s | of these the controllers: libvirt, s | OpenStack, s |
| --: | --: | --: | --: | --: | --: | --: | --: | --: |
`)
	for _, vms := range designVMs {
		find := func(design string) designPoint {
			i := slices.IndexFunc(points, func(p designPoint) bool { return p.Design == design && p.VMs == vms })
			if i < 0 {
				return designPoint{Design: design, VMs: vms}
			}
			return points[i]
		}
		tasks, libvirt, cloud := find(taskBased), find(overLibvirt), find(overOpenStack)
		fmt.Fprintf(t, "| %d | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |\n", vms, tasks.seconds(), libvirt.seconds(), cloud.seconds(),
			tasks.cpuOfEach(), libvirt.cpuOfEach(), cloud.cpuOfEach(), libvirt.controllerOfEach(), cloud.controllerOfEach())
	}
	fmt.Fprintf(t, "\nRounds: %d. The controllers are slurmctld and its database, and with OpenStack the cloud's services, their database and queue,\nwhich have hosts of their own on a site. The rest is on the VMs' node: the guests, QEMU, libvirt, the agent, nova-compute.\n\n", len(points[0].Rounds))
}
