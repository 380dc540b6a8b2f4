// Package pmi relays the conversation between an MPI program in a VM and the PMI server
// of slurmstepd. It changes the answers that would be wrong in a VM.
//
// Slurm's mpi/pmi2 plugin speaks two dialects: PMI-1 (lines) and PMI-2 (six digits of
// length, then the body). Both begin with a line "cmd=init pmi_version=…". The server
// parses one message per read, so a relay writes each message whole, with one Write.
//
// The relay changes three things. PMI_process_mapping says which ranks share a node: the
// relay makes it say which share a VM ([Mapping.ToVMs]), as otherwise ranks in two VMs of
// a node would try shared memory. Attributes of a node (PMI-2) get the VM's number in
// their key, as otherwise ranks of another VM on the node would read them. Spawning is
// refused: Slurm would start the new processes on the bare nodes.
//
// It also follows whether the program is a rank ([Membership]), so that its end can end the
// others.
//
// The package does not touch the machine: streams are readers and writers.
package pmi

// A dialect says how messages are framed and their fields separated.
type dialect int

// The dialects that Slurm's mpi/pmi2 plugin serves.
const (
	pmi1 dialect = 1 // lines; fields separated by spaces
	pmi2 dialect = 2 // six digits of length, then fields ended by semicolons
)

// dialectOf returns the dialect of a pmi_version.
func dialectOf(version string) dialect {
	if version == "2" {
		return pmi2
	}
	return pmi1
}

const (
	// maxMessage bounds one message. PMI-2 cannot announce more than 999999
	// bytes; PMI-1 lines are below 1024, but a spawn request has many lines.
	maxMessage = 1 << 20

	// maxValue is the longest value that a client can take: its buffer has 1024 bytes.
	maxValue = 1023

	// maxLine is the longest PMI-1 line that a client can take, newline included: MPICH
	// reads lines into a buffer of 1024 bytes that ends with a zero byte.
	maxLine = 1023
)
