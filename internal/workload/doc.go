// Package workload is the program that slurmv prove runs as a step of a job, in VMs and on
// the bare nodes: it shows what a program finds there, and measures.
//
// It is one static binary for both, since nobody knows which MPI library a site's images
// and nodes have in common. Its ranks find each other as those of an MPI program do, by
// PMI-1 ([Rank]), and talk by TCP. So it shows Slurm-V's part of starting MPI programs, and
// no MPI library's.
//
// Each rank prints what it found as one line of JSON, a [Sample] for measurements or a
// [Finding] for everything else.
package workload
