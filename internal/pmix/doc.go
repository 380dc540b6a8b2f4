// Package pmix is slurmv-pmix, a PMIx server over Slurm's PMI: with it, a program that needs PMIx
// (Open MPI) runs as a step that offers PMI. It is C, since it opens the image's own libpmix; this
// package has its tests. The Makefile builds slurmv-pmix.
//
// The guest agent starts one for each run that has ranks in the VM (guest/pmix.go), in a cgroup of
// its own, and sends it each rank as it comes: the rank's PMI, and a socket to the process that
// becomes the program and awaits its environment there (local.c, main.c). Each rank enters a PMI
// barrier when it arrives. When the barrier opens, all ranks of the VM have arrived. Then server.c
// begins to serve them: the image's libpmix does the protocol and asks for what a resource manager has to
// do. placement.c tells from PMI's mapping which ranks share the VM, libpmix.c finds the library.
//
// A fence is a barrier of PMI (pmi.c) that is entered for each rank of the VM. Before it, the server
// puts what its ranks have to say, once, and after it gets what those of the other VMs have
// (fence.c). What ranks say to neighbours only, such as where their shared memory is, does not
// leave the server. Connecting, finalizing and aborting go over the rank's own PMI, since its relay
// judges the rank by them.
//
// The server lives until the guest agent closes its socket, after the last rank. If it ends before,
// the agent ends the ranks. What is missing (spawn, connect, fences of some ranks in several VMs,
// data without a fence) is in docs/mpi.md.
package pmix
