// Package hostdir serves directories of the node to VMs by FUSE.
//
// The guest's kernel sends its requests through the channel of the guest agent (see
// [guest.Session.Mount]), so neither QEMU nor the guest needs a device for them. A process
// of the job's owner answers them:
//
//	programs - guest's kernel - /dev/fuse - slurmv-guest - channel - slurmv-agent - server
//
// There is one server for each directory on a node. Its root directory is the directory that
// it serves (chroot), so a guest whose kernel lies cannot lead it elsewhere by symbolic links
// that the guest itself has made.
package hostdir
