// Package prove shows by a site's own Slurm that Slurm-V works there, and what VMs cost.
//
// A [Request] becomes [Job]s: batch scripts of plain shell, which an administrator can read
// and submit again by hand. Each script leaves its findings as files in its directory
// ([Files]). From these files the steps are judged ([Step]); the whole is a [Proof], which
// is written as JSON and as a page. Names of hosts and users, addresses and paths are taken
// out of a proof ([Names.Hide]), so that a site can send it.
//
// All of this is pure. Only a [Prover] touches anything: it submits the jobs, waits, and
// reads and writes the files.
package prove
