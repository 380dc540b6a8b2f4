package main

import (
	"fmt"
	"strings"

	"github.com/slurm-v/slurm-v/bench/stats"
)

const intro = `# How fast VMs come up

Measured by ` + "`make bench`" + `, every part in one run on one machine: compare the columns of a
table with each other, not with other machines. Numbers are medians of the rounds
where a table says how many. The machine has no KVM, so every guest instruction is emulated and a boot costs
seconds of CPU; all nodes share its cores. A time is from the request of the VM step until
the VMs of all nodes know each other ([what each stage is](architecture.md#the-record-of-a-launch)).
All that was measured is in [benchmarks.json](benchmarks.json).

`

// report returns docs/benchmarks.md.
func (r *results) report() string {
	var t strings.Builder
	t.WriteString(intro)
	r.reportParts(&t)
	if r.Launch != nil {
		r.Launch.report(&t)
	}
	if len(r.Figures) > 0 {
		reportFigures(&t, r.Figures)
	}
	if len(r.Designs) > 0 {
		reportDesigns(&t, r.Designs)
	}
	if len(r.Scale) > 0 {
		reportScale(&t, r.Scale)
	}
	if r.Jobs != nil {
		r.Jobs.report(&t)
	}
	if r.Clones != nil {
		r.Clones.report(&t)
	}
	if _, found := r.Parts["control"]; found {
		t.WriteString("## What is left without guests\n\n256 VMs on a node, and jobs of up to 64 nodes: [scale.md](scale.md).\n\n")
	}
	if r.Waiting != nil {
		r.Waiting.report(&t)
	}
	return strings.TrimRight(t.String(), "\n") + "\n"
}

// reportParts says when each part was measured, and how.
func (r *results) reportParts(t *strings.Builder) {
	t.WriteString("| part | measured | cores | load average | |\n| --- | --- | --: | --: | --- |\n")
	for _, p := range parts {
		if taken, found := r.Parts[p.name]; found {
			note := ""
			if taken.Quick {
				note = "quick: once only, fewer points"
			}
			fmt.Fprintf(t, "| %s | %s | %d | %s | %s |\n", p.name, taken.At.Format("2006-01-02 15:04"), taken.CPUs, taken.Load, note)
		}
	}
	t.WriteString("\n")
}

func (l launchResult) report(t *strings.Builder) {
	verdict := "within"
	if l.overhead() > max(0.5, stats.Median(l.Bare)/10) {
		verdict = "beyond"
	}
	fmt.Fprintf(t, `## What Slurm-V adds to one VM

One VM by Slurm-V, and in turns the same VM by qemu-system-x86_64 alone: the same guest,
devices and arguments, until the guest agent has set up user, mount and addresses. Slurm-V's
time has, beside that, Slurm's start of the step, image, network, overlay, seed disk, libvirt,
and the map of VMs.

| | median of %d, s | all, s |
| --- | --: | --- |
| Slurm-V | %.2f | %s |
| QEMU alone | %.2f | %s |
| **added** | **%.2f** | %.0f %% |

This is %s the bound of 10 %% or 0.5 s, whichever is more.

`, len(l.SlurmV), stats.Median(l.SlurmV), list(l.SlurmV), stats.Median(l.Bare), list(l.Bare), l.overhead(), 100*l.overhead()/stats.Median(l.Bare), verdict)
	t.WriteString("Slurm-V's stages, medians in seconds:")
	for _, s := range launchStages {
		fmt.Fprintf(t, " %s %.2f", s, medianStage(l.Stages, s))
	}
	t.WriteString(". Of these QEMU alone has most of start, boot and agent.\n\n")
}

// launchStages are the stages of a cold start, in order.
var launchStages = []string{"queue", "plan", "image", "taps", "libvirt", "disk", "define", "start", "boot", "agent", "network"}

func list(values []float64) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = fmt.Sprintf("%.2f", v)
	}
	return strings.Join(texts, ", ")
}

// figureStages are the stages in the paper's figures; the others are short.
var figureStages = []string{"image", "vf", "disk", "start", "boot", "restore", "agent"}

func reportFigures(t *strings.Builder, figures []figure) {
	fmt.Fprintf(t, `## Ways of getting at an image

The paper's Figures 5 and 6: one VM with a VF and a shared-memory device, from an image of
%.1f GB on shared storage. The file server gives the node %d MiB/s, as 1 Gb/s Ethernet does at
best; caches are emptied before each round. The paper copies the image to the
node (`+"`copy`"+`, in the stage disk), or makes a snapshot of it where it lies.

![stages of each way](benchmarks-image.svg)

| way | ready, s |`, float64(imageMB)/1000, linkMB)
	for _, s := range figureStages {
		fmt.Fprintf(t, " %s |", s)
	}
	fmt.Fprintf(t, " faster than copy | rounds |\n| --- |%s --: | --: |\n", strings.Repeat(" --: |", len(figureStages)+1))
	copied := figures[0].seconds()
	for _, f := range figures {
		fmt.Fprintf(t, "| %s | %.2f |", f.Way, f.seconds())
		for _, s := range figureStages {
			fmt.Fprintf(t, " %.2f |", f.stage(s))
		}
		fmt.Fprintf(t, " %.2f × | %d |\n", copied/f.seconds(), len(f.Rounds))
	}
	t.WriteString("\n" + figureRatios(figures) + "\n")
}

// figureRatios compares the ways that the paper compares, and some others.
func figureRatios(figures []figure) string {
	find := func(way string) float64 {
		for _, f := range figures {
			if f.Way == way {
				return f.seconds()
			}
		}
		return 0
	}
	snapshot, warm := find("snapshot, direct"), find("warm")
	return fmt.Sprintf(`A snapshot is %.2f times as fast as a copy (the paper: 2.64 and 2.09), from the node's cache
%.2f times; a warm start is %.2f times as fast as a cold snapshot from the cache.
`, find("copy")/snapshot, find("copy")/find("snapshot, cache"), find("snapshot, cache")/warm)
}

func reportScale(t *strings.Builder, points []scalePoint) {
	t.WriteString(`## Many VMs on several nodes

The paper's Figures 7 and 8: VMs spread evenly over nodes, started one after another on each
node, or in parallel; booted (cold), or restored from a template (warm). The CPU floor is the CPU
time that all nodes together took, divided by the machine's cores: no launch can be faster here.
Several nodes share the cores, and as many VMs come up at once as they are
(` + "`[launch] parallel`" + `). What has one round may be of another run (` + "`--rest`" + `).

![time by number of VMs](benchmarks-nodes.svg)

| VMs | nodes | start | time, s | CPU floor, s | time by floor | rounds |
| --: | --: | --- | --: | --: | --: | --: |
`)
	for _, p := range points {
		fmt.Fprintf(t, "| %d | %d | %s | %.2f | %.2f | %.2f | %d |\n",
			p.VMs, p.Nodes, p.way(), p.seconds(), p.floor(), p.seconds()/p.floor(), len(p.Rounds))
	}
	for _, p := range points {
		if p.VMs == 32 && p.Nodes == 4 && p.Start == "warm" && !p.Serial {
			fmt.Fprintf(t, "\n32 VMs on 4 nodes are up after **%.1f s**, %.2f times the CPU floor (the paper, on 4 real machines: 34.88 s).\nWhat takes the time of a restored VM is [here](architecture.md#vms-from-templates).\n",
				p.seconds(), p.seconds()/p.floor())
		}
	}
	t.WriteString("\n")
}

func (j jobsResult) report(t *strings.Builder) {
	fmt.Fprintf(t, `## Many jobs, one image

Jobs of one VM each that want the same image of %.0f MB, from a file server that gives the node
%s of bytes a second: one job alone without a copy of the image on the node, many at once with
one (cached), and many at once without (cold; `+"`bench/image-cache`"+`). The VMs are restored from a
template, so that two cores can start as many; a template is no copy of the image.

| round | jobs | jobs that copied | read from the server, images | longest wait for the image, s | all ready after, s |
| --- | --: | --: | --: | --: | --: |
`, float64(j.ImageBytes)/1e6, j.Rate)
	for _, r := range j.Rounds {
		fmt.Fprintf(t, "| %s | %d | %d | %.2f | %.1f | %.1f |\n", r.Round, r.Jobs, r.Copied, float64(r.Bytes)/float64(j.ImageBytes), r.Image, r.Seconds)
	}
	one, cached, cold := j.round("one"), j.round("cached"), j.round("cold")
	fmt.Fprintf(t, "\nOne transfer takes %.1f s and the starts of all %.1f s, together %.1f s; all at once without a copy take %.1f s.\n\n",
		one.Image, cached.Seconds, one.Image+cached.Seconds, cold.Seconds)
}

func (c clonesResult) report(t *strings.Builder) {
	fmt.Fprintf(t, `## VMs from a template are different machines

Of %d VMs on 4 nodes, restored from a template on each, so many had one of their own:

| | different |
| --- | --: |
`, c.VMs)
	for _, name := range identity {
		fmt.Fprintf(t, "| %s | %d |\n", name, c.Different[name])
	}
	fmt.Fprintf(t, "\nNo clock was further than %.3f s from the host's.\n\n", c.Clock)
}

func (w waitingResult) report(t *strings.Builder) {
	fmt.Fprintf(t, `## Guests whose boot mostly waits

Emulated guests boot by computing, so cores that are busy with one have no time for another.
Guests of real nodes wait: for disks, devices, services. Here each of %d guests on one node
sleeps for %d s in its boot, and in parallel one for each core computes at a time.

| %d VMs on a node | s |
| --- | --: |
| one after another | %.1f |
| in parallel | %.1f |
| **less by** | **%.1f %%** |

(The paper: 86 and 87 %% with 32 VMs on 4 nodes.)

`, w.VMs, w.Wait, w.VMs, w.Serial.Seconds, w.Parallel.Seconds, 100*w.saved())
}
