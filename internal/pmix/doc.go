// Package pmix is slurmv-pmix, which lets a program that needs PMIx (Open MPI) run as a rank of
// a Slurm step that offers PMI. It is C, since it opens the image's own libpmix; this package
// has its tests. The Makefile builds slurmv-pmix.
//
// slurm-v-run --mpi=pmix starts each rank in its VM as slurmv-pmix PROGRAM ARGUMENTS. main.c
// forks a PMIx server for the rank and then becomes the program, so exit status, signals and
// terminal are the program's own. server.c is the server: the image's libpmix does the protocol
// and asks for what a resource manager has to do. It lives as long as the connection to the PMI
// server (pmi.c), which is Slurm's, behind the relay of this rank. A fence is a barrier there: each server puts the data of its
// rank before, and gets the others' after (fence.c). placement.c tells from PMI's mapping which
// ranks share the VM. libpmix.c finds the library.
//
// Each rank has a server of its own, so nothing is left to agree on in a VM, and a rank that is
// killed takes nobody's server with it. What that costs, and what is missing (spawn, connect,
// fences of some ranks only, data without a fence) is in docs/mpi.md.
package pmix
