// Package vmlaunch runs the virtual machines of one job on one node.
//
// Package plan decides every name, address, file and CPU. [Launch] carries the plan out and
// returns the [VMs], which live until the step ends. [Reclaim] undoes a launch from the
// journal alone, so it works after a crash too, and may run twice.
//
// libvirt's QEMU driver runs inside this process (qemu:///embed) with a root
// directory per job: QEMU is born in the step's cgroup, runs as the job's owner,
// and cleaning up is killing QEMU and removing one directory.
package vmlaunch
