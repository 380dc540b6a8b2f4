//go:build !noguests

package vmlaunch

import "net"

// driver names libvirt's driver for the VMs of one job, which keeps all its files
// below root.
func driver(root string) string { return "qemu:///embed?root=" + root }

// dialPort connects to the socket on which QEMU offers a port of a VM.
func dialPort(socket string) (net.Conn, error) { return net.Dial("unix", socket) }
