package hypervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ForbidLinks makes the kernel follow no symbolic link below the directory in which libvirt with
// this root keeps a directory for each VM. libvirt is root here and gives such a directory to the
// VM's owner. Then it goes on to make files in it and to give these away by their paths. A link that
// the owner puts there in time would lead libvirt to any file of the node.
//
// The directory becomes a mount, which goes when root is removed: the trash detaches mounts.
func ForbidLinks(root string) error {
	dir := filepath.Join(root, "lib", "qemu")
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = unix.Mount(dir, dir, "", unix.MS_BIND, "")
	}
	if err == nil {
		err = unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSYMFOLLOW|unix.MS_NOSUID|unix.MS_NODEV, "")
	}
	if err == nil {
		err = followsNone(dir)
	}
	if err != nil {
		return fmt.Errorf("forbid symbolic links below %s: %w", dir, err)
	}
	return nil
}

// allowLinks undoes [ForbidLinks].
func allowLinks(root string) {
	_ = unix.Unmount(filepath.Join(root, "lib", "qemu"), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
}

// followsNone checks that the kernel has understood: one that is older leaves the flag out.
func followsNone(dir string) error {
	const noSymFollow = 0x2000 // ST_NOSYMFOLLOW, in Linux's include/linux/statfs.h
	var is unix.Statfs_t
	err := unix.Statfs(dir, &is)
	if err == nil && is.Flags&noSymFollow == 0 {
		err = errors.New("this kernel has no mounts without links (nosymfollow); use Linux 5.10 or newer")
	}
	return err
}
