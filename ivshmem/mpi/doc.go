// Package mpi is the library that lets unmodified MPI libraries talk between VMs through the
// memory that they share (IVShmem). It is C, for programs preload it; this package has its
// tests. The Makefile builds libslurmv-mpi.so.
//
// MPI libraries share memory between the ranks of a machine by files in /dev/shm. In a run
// with a device, those files of all VMs of the job on a node are in the device: hooks.c stands
// before the C library's functions about files, files.c knows the descriptors and mappings of
// this process, and region.c keeps names and room in the device itself. Locks there cannot
// sleep in the kernel, so locks.c keeps them; machine.c lets the VMs of a node look like one
// machine, and pmix.c tells Open MPI, which asks PMIx, that the ranks of the node are neighbours;
// report.c tells the relay of the rank, which says the same to an MPI that uses PMI (internal/pmi).
// settings.c reads what vmstep.MPIMemory has written. What MPI libraries do that makes all this
// necessary is in docs/mpi.md.
package mpi
