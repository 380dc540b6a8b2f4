// Package hypervisor runs virtual machines by libvirt and QEMU.
//
// A [Driver] is libvirt's QEMU driver inside this process (qemu:///embed), with a root
// directory of its own. QEMU starts in the caller's cgroup and runs as the job's owner. To
// end VMs means to kill QEMU ([Kill]) and to remove one directory. [Describe] turns a plan
// into libvirt's description of a VM, and a [Domain] is the VM.
//
// The settings in emulated.go only make emulated guests quicker, and apply only to them.
package hypervisor
