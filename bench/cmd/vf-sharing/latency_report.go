package main

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/slurm-v/slurm-v/config"
)

const introLatency = `The paper measures round trips between two hosts with ib_send_lat, with and without minima, and finds little
difference. Its text names neither sizes of messages nor other load. Here a VM and its partner on the other
node send a message back and forth: on an idle link, and beside %d VMs that send twice as much as the link of
%s carries. The VM has a minimum of %d %% or none. The others have none, or the same each, which together with
the VM's own takes all of the link.

Expected on an idle link: a minimum changes nothing. On a full link, a VM with a minimum does not wait. One
without waits with each frame for the turns of the others. If nobody has a minimum, their turns are a frame
each, together %.1f ms. If they have minima, their turns are long, and a small frame goes sooner by the 1/%d
of the link that each VM has for itself: after %.0f ms if the message is of 64 bytes, %.0f ms if it is of 1024.

![round trips by message size](vf-sharing-latency.svg)

Measured by ` + "`chrt -r 1 bench/vf-sharing latency`" + ` on %d cores. Messages are UDP data; the last two
sizes are 3 and 12 frames. They take at most a tenth of the link. Each size is sent for %v or longer, in %d
rounds; the values are the middle of the rounds, in brackets the smallest and the largest. Round trip in ms,
median:

%s
99th percentile:

%s
Answered messages, lost ones, and what arrived of the others meanwhile:

%s
- **On an idle link** a minimum costs nothing: the first two rows differ by some hundredths of a millisecond,
  as rounds of one row do. That is this machine's scheduler.
- **On a full link** a VM with a minimum is about as fast as on an idle one, up to the size that it may send at
  once: 4 ms at its minimum and a frame, here %.1f KB. It sends the rest at its minimum, so a message of
  16 KiB takes %.0f ms longer.
- **A VM without a minimum pays** where others have one, and a job cannot know what others on its node ask for. A
  job whose messages matter asks for a minimum of at least what they need.
- In the last row a round is so few messages that the 99th percentile is the longest.
`

func reportLatency(results []latency, o order) string {
	cell := func(percent float64) func(latency, int) string {
		return func(l latency, size int) string { return l.at(size, percent).String() }
	}
	own, share := float64(trials[1].own), 100.0/(100*vfs)
	burst := atOnce(o.link, own)
	return fmt.Sprintf(introLatency, others, human(o.link.String()), trials[1].own,
		millis(o.link, 100, others*(headers+mostData)), 100*vfs, millis(o.link, share, headers+64), millis(o.link, share, headers+1024),
		runtime.NumCPU(), o.interval, rounds,
		bySize(results, cell(50)), bySize(results, cell(99)), countRows(results),
		burst/1e3, millis(o.link, own, 16384+12*headers-burst))
}

// millis returns how long so many bytes take at a part of the link.
func millis(link config.Rate, percent, bytes float64) float64 {
	return bytes * 8 / (float64(link) * 1e6 * percent / 100) * 1e3
}

// atOnce returns the bytes that a VM may send at once, as vfpool/software sets them.
func atOnce(link config.Rate, percent float64) float64 {
	const burst, frame = 0.004, 1600 // seconds, bytes
	return float64(link)*1e6/8*percent/100*burst + frame
}

// bySize returns a table with a row per trial and a column per size.
func bySize(results []latency, cell func(latency, int) string) string {
	text, rule := "| |", "| --- |"
	for _, bytes := range sizes {
		text += fmt.Sprintf(" %d bytes |", bytes)
		rule += " --: |"
	}
	text += "\n" + rule + "\n"
	for _, l := range results {
		text += "| " + l.name + " |"
		for size := range sizes {
			text += " " + cell(l, size) + " |"
		}
		text += "\n"
	}
	return text
}

// countRows returns the table of how many messages there were, and how full the link was.
func countRows(results []latency) string {
	text := "| | answered, by size | lost | others, Mb/s |\n| --- | --- | --: | --: |\n"
	for _, l := range results {
		var numbers []string
		for size := range sizes {
			numbers = append(numbers, fmt.Sprint(l.number(size)))
		}
		text += fmt.Sprintf("| %s | %s | %d | %.1f |\n", l.name, strings.Join(numbers, " / "), l.lost, sum(l.load)/float64(len(l.load)))
	}
	return text
}

// String writes small times with more digits.
func (s spread) String() string {
	digits := 2
	if s.middle >= 10 {
		digits = 0
	}
	return fmt.Sprintf("%.*f (%.*f-%.*f)", digits, s.middle, digits, s.least, digits, s.most)
}
