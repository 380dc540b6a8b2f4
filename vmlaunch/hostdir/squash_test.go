package hostdir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/filetest"
	"github.com/slurm-v/slurm-v/internal/owner"
)

// A squashed directory is alice's on a file server that asks for the caller itself, as NFS does,
// and takes root for nobody (root_squash).
type squashed struct{ *fs.LoopbackNode }

var (
	_ fs.NodeWrapChilder = squashed{}
	_ fs.NodeAccesser    = squashed{}
	_ fs.NodeLookuper    = squashed{}
)

func (s squashed) WrapChild(_ context.Context, child fs.InodeEmbedder) fs.InodeEmbedder {
	return squashed{child.(*fs.LoopbackNode)}
}

// Access is asked before a process enters a directory.
func (s squashed) Access(ctx context.Context, _ uint32) syscall.Errno {
	if caller, ok := fuse.FromContext(ctx); !ok || caller.Uid != alice.UID || caller.Gid != alice.GID {
		return syscall.EACCES
	}
	return 0
}

func (s squashed) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if errno := s.Access(ctx, unix.X_OK); errno != 0 {
		return nil, errno
	}
	return s.LoopbackNode.Lookup(ctx, name, out)
}

// squash returns where the file server has the directory.
func squash(t *testing.T, dir string) string {
	t.Helper()
	at := filetest.PassableDir(t)
	root, err := fs.NewLoopbackRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	options := &fs.Options{MountOptions: fuse.MountOptions{AllowOther: true, DirectMountStrict: true}}
	if _, err := fs.Mount(at, squashed{root.(*fs.LoopbackNode)}, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	return at
}

func TestAFileServerThatRefusesRoot(t *testing.T) {
	local := newVM(t)
	local.sh("echo hello >f")
	home := squash(t, local.host)
	contains(t, local.anywhere("env -C "+local.host+" cat f; env -C "+home+" true 2>&1 || true; cat "+home+"/f 2>&1 || true"),
		"hello\n", "cannot change directory to '"+home+"': Permission denied", home+"/f: Permission denied")
	v := startVM(t, startServer(t, Directory{Path: home}), home)
	v.want("a file there", v.sh("cat f; echo more >g; cat "+local.host+"/g; stat -c %u "+local.host+"/g"), "hello\nmore\n65533\n")
}

func TestTheServerEntersAsTheOwner(t *testing.T) {
	member := alice
	member.Groups = append([]owner.Group{{GID: 65532}}, alice.Groups...)
	for name, tt := range map[string]struct {
		uid, gid int
		mode     os.FileMode
		want     string
	}{
		"their directory":                      {65533, 65533, 0o700, "<nil>"},
		"a directory of a group of theirs":     {0, 65532, 0o710, "<nil>"},
		"a directory that is closed to them":   {0, 0, 0o700, "serve the directory DIR to VMs: enter it: permission denied"},
		"theirs, which they themselves closed": {65533, 65533, 0o600, "serve the directory DIR to VMs: enter it: permission denied"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(aliceDir(t), "d")
			if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, tt.uid, tt.gid), os.Chmod(dir, tt.mode)); err != nil {
				t.Fatal(err)
			}
			s, err := Start(t.Context(), member, Directory{Path: dir})
			if err == nil {
				err = s.Close()
			}
			if got := strings.ReplaceAll(fmt.Sprint(err), dir, "DIR"); got != tt.want {
				t.Errorf("error = %s, want %s", got, tt.want)
			}
		})
	}
}
