package main

import "strings"

const head = `# How VMs share a link by the minima of their VFs

ConRDMA's evaluation of bandwidth, with software VFs on a link that is scaled down from 100 Gb/s;
only the proportions matter. [vf-nodes.md](vf-nodes.md) has its evaluation of the choice of nodes.

Each experiment has two nodes, network namespaces, whose bridges a cable connects, and pairs of
VMs, one VM on each node. The VMs are programs that write frames to their taps and read them, in
QEMU's place. ` + "`chrt -r 1`" + ` gives them their CPU even if the machine has other work: a VM without a
CPU does not send. ` + "`bench/vf-sharing three`, `twelve` and `latency`" + ` make a section each.
`

const tail = `## What this does not show

- **A card.** Linux's traffic control does here what the card does there. A card has its own precision and its
  own rule for idle bandwidth; mlx5 takes minima as weights.
- **RDMA.** There is no bypass of the kernel. The latencies without load are of Linux's bridges and of this
  machine's scheduler, and they are large beside a card's microseconds. What is comparable is the difference
  between two rows, which is time in the queues of the link.
- **A wire.** The link is a limit in the sending node's traffic control. On a wire, a message with a minimum
  also waits for the frame that is on its way: 0.1 µs at 100 Gb/s.
- **Incast.** Only what a VM sends has a minimum, here as in the paper. VMs of several nodes that send to one
  share its link without regard to minima.
`

// sectionsOf returns the sections of a document by their headings.
func sectionsOf(text string) map[string]string {
	sections := map[string]string{}
	for _, part := range strings.Split("\n"+text, "\n## ")[1:] {
		heading, body, _ := strings.Cut(part, "\n")
		sections[heading] = strings.Trim(body, "\n") + "\n"
	}
	return sections
}

// document puts the sections of the choices into their order.
func document(sections map[string]string) string {
	text := head
	for _, c := range choices {
		if body := sections[c.heading]; body != "" {
			text += "\n## " + c.heading + "\n\n" + strings.Trim(body, "\n") + "\n"
		}
	}
	return text + "\n" + tail
}
