package main

import (
	"fmt"
	"math"
	"runtime"
	"strings"
)

// A phase is a range of iterations in which the same senders send.
type phase struct{ first, last int }

func (s scenario) phases() (found []phase) {
	for i := 1; i <= s.iterations; i++ {
		if i == 1 || s.active(i) != s.active(i-1) {
			found = append(found, phase{i, i})
		}
		found[len(found)-1].last = i
	}
	return found
}

// active names the senders of an iteration.
func (s scenario) active(iteration int) (text string) {
	for i, sender := range s.senders {
		if sender.sends(iteration) {
			text += fmt.Sprintf(" %d", i)
		}
	}
	return text
}

func (r result) average(p phase) []float64 {
	sums := make([]float64, len(r.senders))
	for i := p.first; i <= p.last; i++ {
		for s := range sums {
			sums[s] += r.samples[i-1][s] / float64(p.last-p.first+1)
		}
	}
	return sums
}

const introThree = `Three VMs on one PF have minima of 60 %% (video), 30 %% (AI) and 10 %% (file) of the link of
%s. They begin to send one after another, stop in the same order, and each sends as much as it can.

Expected with minima: a sender that is alone gets the full link; three senders get 60/30/10;
AI and file get 3:1 when video has stopped, because idle bandwidth is shared in proportion to
the minima, too. Expected without minima: equal parts.

![throughput of each sender](vf-sharing.svg)

Measured by ` + "`chrt -r 1 bench/vf-sharing three`" + ` on %d cores, %v per iteration. The VMs send UDP of 1500
bytes at 1.2 times the rate of the link; their partners count what arrives, headers included.
Mb/s, video / AI / file:

`

func reportThree(results []result) string {
	var text strings.Builder
	first := results[0]
	fmt.Fprintf(&text, introThree, human(first.link.String()), runtime.NumCPU(), first.interval)
	text.WriteString("| iterations | with minima: expected | measured | without: expected | measured |\n| --- | --- | --- | --- | --- |\n")
	for _, p := range first.phases() {
		fmt.Fprintf(&text, "| %d-%d |", p.first, p.last)
		for _, r := range results {
			fmt.Fprintf(&text, " %s | %s |", list(r.expected(p.first)), list(r.average(p)))
		}
		text.WriteString("\n")
	}
	text.WriteString("\nAll samples, Mb/s:\n\n| iteration | with minima: video | AI | file | without: video | AI | file |\n| --: | --: | --: | --: | --: | --: | --: |\n")
	for i := range first.iterations {
		fmt.Fprintf(&text, "| %d |", i+1)
		for _, r := range results {
			for _, sample := range r.samples[i] {
				fmt.Fprintf(&text, " %.1f |", sample)
			}
		}
		text.WriteString("\n")
	}
	return text.String()
}

const introTwelve = `In the paper, two nodes with a card have twelve containers each; a third node is the manager. There
are four of each kind, with minima of 20 Gb/s (video), 5 Gb/s (AI) and none (file): the minima take all of
the link. The paper says that the rates are as configured.

Expected: the VMs of a kind get the same, and those with a minimum get it; the VMs without one get next to
nothing until the others stop. Here the kinds stop one after another, so that one sees who gets
the idle bandwidth. Without minima all get equal parts.

**Where they go** is decided by ` + "`vfpool/place`" + `: the VMs arrive one by one, all senders before
their partners, and the first node that has room takes a VM. (In a cluster Slurm chooses the node first, by its
count.) The manager n0 has no PF; n1 and n2 have one of %s with %d VFs. In the left column minima may
take all of the link, as in the paper; in the right one, 5 %% of it is kept for the host, which is the
default of ` + "`reserve`" + `.

| VMs | reserve 0 %% | reserve 5 %% |
| --- | --- | --- |
%s
**What they get**, placed as in the left column:

![throughput of each VM](vf-sharing-twelve.svg)

Measured by ` + "`chrt -r 1 bench/vf-sharing twelve`" + ` on %d cores, %v per iteration, each VM sending at %g
times the rate of the link. Mb/s per VM: the mean of the kind, and in brackets the smallest and the largest
sample of one VM in one iteration. The first iteration of each phase, in which queues fill or drain, does not
count.

| iterations | kind | with minima: expected | measured | without: expected | measured |
| --- | --- | --: | --: | --: | --: |
%s
A VM without a minimum is given 1/%d of the link for itself, so that it does not starve, and of idle
bandwidth at least one frame per turn. On a link of 100 Mb/s, one frame is a twentieth of what a minimum of
5 Mb/s gets in a turn: this is what file gets in iterations %d-%d. At 100 Gb/s turns are of many
frames, and by the same rules it would be an eightieth.
`

func reportTwelve(results []result) string {
	first := results[0]
	second := first.phases()[1]
	return fmt.Sprintf(introTwelve, human(first.link.String()), vfs, placements(first),
		runtime.NumCPU(), first.interval, first.surplus, kindRows(results), 100*vfs, second.first+1, second.last)
}

// placements returns a row per step.
func placements(r result) (rows string) {
	reserved := placed(r.link, 5)
	for i, s := range placed(r.link, 0) {
		rows += fmt.Sprintf("| %s | %s | %s |\n", s.title, s, reserved[i])
	}
	return rows
}

// kindRows returns a row per phase and kind that sends.
func kindRows(results []result) (rows string) {
	first := results[0]
	for _, p := range first.phases() {
		for i, s := range first.senders[:len(kinds)] {
			if !s.sends(p.first) {
				continue
			}
			rows += fmt.Sprintf("| %d-%d | %s |", p.first, p.last, s.kind)
			for _, r := range results {
				rows += fmt.Sprintf(" %.1f | %s |", r.expected(p.first)[i], r.settled(p, s.kind))
			}
			rows += "\n"
		}
	}
	return rows
}

// settled summarises a kind in a phase without its first iteration.
func (r result) settled(p phase, kind string) string {
	var all []float64
	least, most := math.Inf(1), 0.0
	for i := p.first + 1; i <= p.last; i++ {
		for s, sample := range r.samples[i-1] {
			if r.senders[s].kind == kind {
				all = append(all, sample)
				least, most = min(least, sample), max(most, sample)
			}
		}
	}
	return fmt.Sprintf("%.2f (%.2f-%.2f)", sum(all)/float64(len(all)), least, most)
}

func list(rates []float64) string {
	var texts []string
	for _, r := range rates {
		texts = append(texts, fmt.Sprintf("%.1f", r))
	}
	return strings.Join(texts, " / ")
}

// human writes a rate of the configuration, such as 100m, for readers.
func human(rate string) string {
	for suffix, unit := range map[string]string{"m": " Mb/s", "g": " Gb/s"} {
		if number, ok := strings.CutSuffix(rate, suffix); ok {
			return number + unit
		}
	}
	return rate + " Mb/s"
}
