// Package vmlaunch runs the virtual machines of one job on one node.
//
// A [Job] is what Slurm says about the job (identity, owner, what it owns on
// this node) and what its user asked for. [NewPlan] turns it into a [Plan]: every
// name, address, file and domain, computed without touching the machine.
// [Launch] carries the plan out and returns a [Node], which owns the VMs until
// the step ends; [Reclaim] undoes it from the journal alone, so that it works as
// well after a crash, and twice.
//
// libvirt's QEMU driver runs inside this process (qemu:///embed) with a root
// directory per job: QEMU is born in the step's cgroup, runs as the job's owner,
// and cleaning up is killing QEMU and removing one directory.
package vmlaunch
