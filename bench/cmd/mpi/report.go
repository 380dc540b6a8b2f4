package main

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
)

// smallest is the size of the smallest messages, in bytes.
const smallest = 8

const intro = `# Messages of MPI between VMs

Two ranks of an unmodified MPI send messages back and forth
([examples/mpi-pingpong.c](../examples/mpi-pingpong.c)): in two VMs of a node, by the memory that these share (IVShmem)
and by TCP; in one VM; and on the node without VMs. The time of one message is half of the round trip, the best of 20
series. All was measured in one run of ` + "`bench/mpi`" + ` on the development cluster, on a machine with %d cores. There is no
KVM: the VMs are emulated. That makes TCP slow, because each message passes two guest kernels and two virtual cards.

Messages of 8 bytes:

`

func report(r results) string {
	var text strings.Builder
	fmt.Fprintf(&text, intro, runtime.NumCPU())
	for _, library := range libraries {
		shared, within, tcp := r.of(library, "shared memory")[smallest], r.of(library, "one VM")[smallest], r.of(library, "TCP")[smallest]
		fmt.Fprintf(&text, "- %s takes **%.2f µs** by shared memory between VMs, which is %.2f times the time in one VM; TCP takes %.0f times as long.\n",
			library, shared, shared/within, tcp/shared)
	}
	for _, library := range libraries {
		fmt.Fprintf(&text, "\n## %s\n\n", library)
		r.table(&text, library)
	}
	return text.String()
}

// table writes the times of a library, and its bandwidth by shared memory.
func (r results) table(to *strings.Builder, library string) {
	fmt.Fprint(to, "| bytes | between VMs, shared memory, µs | in one VM, µs | without VMs, µs | between VMs, TCP, µs | between VMs, shared memory, MB/s |\n")
	fmt.Fprint(to, "| --: | --: | --: | --: | --: | --: |\n")
	for _, bytes := range slices.Sorted(maps.Keys(r.of(library, ways[0]))) {
		fmt.Fprintf(to, "| %d |", bytes)
		for _, way := range ways {
			fmt.Fprintf(to, " %.2f |", r.of(library, way)[bytes])
		}
		fmt.Fprintf(to, " %.1f |\n", float64(bytes)/r.of(library, ways[0])[bytes])
	}
}
