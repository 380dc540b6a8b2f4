// Package hypervisor runs virtual machines by libvirt and QEMU.
//
// A [Driver] is libvirt's QEMU driver inside this process (qemu:///embed) with a root
// directory of its own: QEMU is born in the caller's cgroup, runs as the job's owner, and
// ending VMs is killing QEMU ([Kill]) and removing one directory. [Describe] turns a plan
// into libvirt's description of a VM, and a [Domain] is the VM.
//
// What only makes emulated guests quicker is in emulated.go and applies to them alone.
package hypervisor
