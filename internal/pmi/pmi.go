// Package pmi carries the conversation between an MPI program in a VM and the
// PMI server of slurmstepd, and corrects what a program must hear differently
// because it runs in a VM.
//
// Slurm's mpi/pmi2 plugin speaks two dialects: PMI-1 (lines) and PMI-2 (six
// digits of length, then the body). Both begin with a line "cmd=init
// pmi_version=…". The server parses one message per read, so a relay passes on
// whole messages, one Write each; [Reader] cuts them out of a stream.
//
// Three things are changed on the way. PMI_process_mapping tells which ranks
// share a node: it is rewritten to tell which share a VM ([Mapping.ToVMs]),
// otherwise ranks in two VMs of a node would try shared memory. Attributes of
// a node (PMI-2) get the VM's name, since the ranks of another VM on that node
// would read them. Spawning is refused: Slurm would start the new processes on
// the bare nodes.
//
// Nothing here touches the machine: streams come in as readers and writers.
package pmi

// A Dialect is how messages are framed and their fields separated.
type Dialect int

// The dialects that Slurm's mpi/pmi2 plugin serves.
const (
	PMI1 Dialect = 1 // lines; fields separated by spaces
	PMI2 Dialect = 2 // six digits of length, then fields ended by semicolons
)

const (
	// MaxMessage bounds one message. PMI-2 cannot announce more than 999999
	// bytes; PMI-1 lines are below 1024, but a spawn request has many lines.
	MaxMessage = 1 << 20

	// MaxValue is the longest value a client can take: its buffer is 1024.
	MaxValue = 1023

	// maxLine is the longest PMI-1 line a client can take, newline included:
	// MPICH reads lines into a buffer of 1024 that ends with a zero byte.
	maxLine = 1023
)
