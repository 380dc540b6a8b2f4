package main

import (
	"fmt"
	"runtime"
	"strings"
)

const intro = `# Messages between two VMs of a node

Two ranks in two VMs of one node send a message back and forth, over the memory that the
VMs share (IVShmem) and over TCP on the job's network, in the same run:
[examples/ivshmem-pingpong.c](../examples/ivshmem-pingpong.c). The time of one message is
half of the round trip. The bandwidth is the message's size divided by this time. Over shared
memory a message is copied in and copied out, in parts of 8 KiB, and the receiver polls. Each
value is the best of 25 series.

Messages of 8 bytes take **%s** over shared memory and **%s** over TCP: %.0f times as long.

![time and bandwidth by message size](ivshmem.svg)

Measured by ` + "`bench/ivshmem`" + ` on the development cluster, on a machine with %d cores.
There is no KVM: the VMs are emulated, one vCPU each. Emulation makes TCP slow here, because
each message passes two guest kernels and two virtual cards. It slows a store into shared
memory little. Expect a smaller difference with KVM, where this has not been measured.

| bytes | IVShmem, µs | TCP, µs | TCP by IVShmem | IVShmem, MB/s | TCP, MB/s |
| --: | --: | --: | --: | --: | --: |
`

func report(results []result) string {
	var text strings.Builder
	small := smallest(results, 8)
	fmt.Fprintf(&text, intro, duration(small.shm), duration(small.tcp), small.tcp/small.shm, runtime.NumCPU())
	for _, r := range results {
		fmt.Fprintf(&text, "| %d | %.2f | %.1f | %.1f | %s | %s |\n", r.bytes, r.shm, r.tcp, r.tcp/r.shm, rate(r.rate(r.shm)), rate(r.rate(r.tcp)))
	}
	return text.String()
}

// smallest returns the result for messages of at least that size.
func smallest(results []result, bytes int) result {
	for _, r := range results {
		if r.bytes >= bytes {
			return r
		}
	}
	return results[len(results)-1]
}

func duration(micros float64) string {
	if micros < 10 {
		return fmt.Sprintf("%.2f µs", micros)
	}
	return fmt.Sprintf("%.0f µs", micros)
}

func rate(mbps float64) string {
	if mbps < 1 {
		return fmt.Sprintf("%.3f", mbps)
	}
	return fmt.Sprintf("%.1f", mbps)
}
