// Package serve answers on the socket of a job on one node, for as long as its VMs live:
// programs in the VMs, consoles, forwarded ports, ssh keys, claims on IVShmem devices.
//
// A door decides who comes in, by what the kernel says of the caller. What runs in a VM is
// the owner's, whatever the caller says. The process gives up its privileges before the
// first caller comes.
package serve
