package main

import (
	"fmt"
	"runtime"
	"strings"
)

// A phase is a range of iterations in which the same senders send.
type phase struct{ first, last int }

func phases() (found []phase) {
	who := func(iteration int) (names string) {
		for _, s := range senders {
			if s.sends(iteration) {
				names += " " + s.name
			}
		}
		return names
	}
	for i := 1; i <= iterations; i++ {
		if i == 1 || who(i) != who(i-1) {
			found = append(found, phase{i, i})
		}
		found[len(found)-1].last = i
	}
	return found
}

func (r result) average(p phase) []float64 {
	sums := make([]float64, len(senders))
	for i := p.first; i <= p.last; i++ {
		for s := range sums {
			sums[s] += r.samples[i-1][s] / float64(p.last-p.first+1)
		}
	}
	return sums
}

const intro = `# How VMs share a link by the minima of their VFs

ConRDMA's evaluation of bandwidth allocation, with software VFs: three VMs on one PF
have minima of 60 %% (video), 30 %% (AI) and 10 %% (file) of the link. They begin to send
one after another, stop in the same order, and each sends as much as it can. The link is
scaled down from 100 Gb/s to %s; only the proportions matter.

Expected with minima: a sender that is alone gets the full link; three senders get 60/30/10;
AI and file get 3:1 when video has stopped, because idle bandwidth is shared in proportion to
the minima, too. Expected without minima: equal parts.

![throughput of each sender](vf-sharing.svg)

Measured by ` + "`chrt -r 1 bench/vf-sharing`" + ` on %d cores, %v per iteration. ` + "`chrt`" + ` gives the guests
their CPU: a guest without a CPU does not send. The guests write frames to their taps, UDP of 1500 bytes at 1.2
times the rate of the link; a UDP socket at the other end of the link counts what arrives,
headers included. Mb/s, video / AI / file:

`

func report(results []result) string {
	var text strings.Builder
	first := results[0]
	fmt.Fprintf(&text, intro, human(first.link.String()), runtime.NumCPU(), first.interval)
	text.WriteString("| iterations | with minima: expected | measured | without: expected | measured |\n| --- | --- | --- | --- | --- |\n")
	for _, p := range phases() {
		fmt.Fprintf(&text, "| %d-%d |", p.first, p.last)
		for _, r := range results {
			fmt.Fprintf(&text, " %s | %s |", list(r.expected(p.first)), list(r.average(p)))
		}
		text.WriteString("\n")
	}
	text.WriteString("\nAll samples, Mb/s:\n\n| iteration | with minima: video | AI | file | without: video | AI | file |\n| --: | --: | --: | --: | --: | --: | --: |\n")
	for i := range iterations {
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
