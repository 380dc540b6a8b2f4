package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/guest"
)

// Mount mounts a directory that a server on the host serves by FUSE.
//
// As with 9p, the server decides what each user may do, for it runs with the rights of the
// job's owner: so there is no option default_permissions. It also tells the kernel to cache
// nothing that another VM or the node may change.
func (m *Machine) Mount(ctx context.Context, mount guest.Mount) (io.ReadWriteCloser, error) {
	if err := checkPlace(mount.Path); err != nil {
		return nil, err
	}
	m.modules(ctx, "fuse")
	fd, err := unix.Open(m.path("dev/fuse"), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%w (module fuse): %w", guest.ErrNoFUSE, err)
	}
	target := m.path(mount.Path)
	err = os.MkdirAll(target, 0o755)
	if err == nil {
		options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,max_read=%d", fd, maxRead)
		err = m.doMount("slurm-v", target, "fuse.slurm-v", mountFlags(mount), options)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("mount %s by FUSE: %w", mount.Path, err)
	}
	return &fuseDevice{file: os.NewFile(uintptr(fd), "/dev/fuse"), target: target}, nil
}

// maxRead is the most data that one request may ask for, in bytes.
const maxRead = 128 << 10

// mountFlags are the flags of a directory of the host: nothing in it gives rights in the VM.
func mountFlags(m guest.Mount) uintptr {
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	if m.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	return flags
}

// A fuseDevice is the kernel's end of a mounted directory.
type fuseDevice struct {
	file   *os.File
	target string
	once   sync.Once
}

// Read returns the next request.
func (d *fuseDevice) Read(p []byte) (int, error) {
	for {
		n, err := d.file.Read(p)
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINTR) { // the request was taken back
			return n, err
		}
	}
}

// Write answers a request.
func (d *fuseDevice) Write(p []byte) (int, error) {
	n, err := d.file.Write(p)
	if errors.Is(err, unix.ENOENT) { // nobody waits for it any more
		return len(p), nil
	}
	return n, err
}

// Close unmounts the directory. Programs that still use it get errors.
func (d *fuseDevice) Close() (err error) {
	d.once.Do(func() {
		err = errors.Join(unix.Unmount(d.target, unix.MNT_DETACH), d.file.Close())
	})
	return err
}
