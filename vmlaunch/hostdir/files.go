package hostdir

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// serve answers the requests of one VM's kernel, which come from the socket conn.
func serve(conn int, readOnly bool) {
	root, err := fs.NewLoopbackRoot(".")
	if err == nil {
		files := fs.NewNodeFS(node{root.(*fs.LoopbackNode)}, &fs.Options{})
		if readOnly {
			files = protect(files)
		}
		var server *fuse.Server
		if server, err = fuse.NewServer(files, fmt.Sprintf("/dev/fd/%d", conn), options()); err == nil {
			server.Serve()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "slurmv-agent: serve a directory to a VM:", err)
		_ = syscall.Close(conn)
	}
}

// options are those of the protocol. No name and no attribute is cached in the guest, so a
// VM sees at once what another VM or the node has written: [fs.Options] above has no
// timeouts, and the kernel drops cached data of a file whose time or size has changed.
// Without extended attributes the kernel does not ask for file capabilities before each
// write, which would double the messages.
func options() *fuse.MountOptions {
	return &fuse.MountOptions{
		MaxWrite:                128 << 10,
		MaxBackground:           64,
		MaxInflightRequestBytes: 64 << 20,
		EnableLocks:             true,
		DisableXAttrs:           true,
		DisableReadDirPlus:      true,
		DisableSplice:           true, // it does not keep the boundaries of messages in a socket
	}
}

// A node is a file or directory.
type node struct{ *fs.LoopbackNode }

var (
	_ fs.NodeWrapChilder = node{}
	_ fs.NodeSetlkwer    = node{}
)

// WrapChild makes nodes of this type of all nodes below.
func (n node) WrapChild(_ context.Context, child fs.InodeEmbedder) fs.InodeEmbedder {
	return node{child.(*fs.LoopbackNode)}
}

// lockPatience is how often a program that waits for a lock looks again.
const lockPatience = 20 * time.Millisecond

// Setlkw waits for a lock. It asks again and again, because a wait in the kernel could not
// be ended when the program in the VM is killed.
func (n node) Setlkw(ctx context.Context, f fs.FileHandle, owner uint64, lock *fuse.FileLock, flags uint32) syscall.Errno {
	file, ok := f.(fs.FileSetlker)
	if !ok {
		return syscall.EBADF
	}
	for {
		if errno := file.Setlk(ctx, owner, lock, flags); errno != syscall.EAGAIN {
			return errno
		}
		select {
		case <-ctx.Done():
			return syscall.EINTR
		case <-time.After(lockPatience):
		}
	}
}
