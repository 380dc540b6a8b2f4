// Package serve answers on the socket of a job on one node, for as long as its VMs live:
// programs in the VMs, consoles, forwarded ports, ssh keys, claims on IVShmem devices.
//
// A door decides which callers come in, by what the kernel says of them. Programs in a VM
// run as the job's owner, whatever the caller says. The process gives up its privileges
// before it serves the first caller.
package serve
