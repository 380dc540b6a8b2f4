//go:build !noguests

package vmlaunch

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/play"
	"github.com/slurm-v/slurm-v/journal"
)

// A process that waits for a file server cannot be killed if the server has read the request and does not answer. A job's
// directory can be on such a server, which can be the user's own: what the job holds is given back all the same.
func TestLogsDoNotWaitForASilentFileServer(t *testing.T) {
	t.Parallel()
	work := filepath.Join(play.OpenDir(t), "work")
	must(t, os.Mkdir(work, 0o777))
	mountSilently(t, work)
	ended := make(chan error, 1)
	go func() {
		ended <- saveAsOwner(t.Context(), journal.Header{Job: 7, UID: play.Owner, GID: play.Owner, Node: "n1", WorkDir: work}, logArchive(t))
	}()
	select {
	case err := <-ended:
		if want := "the file server of " + work + " does not answer"; err == nil || err.Error() != want {
			t.Errorf("error = %v, want %s", err, want)
		}
	case <-time.After(time.Minute):
		t.Error("it waits for the file server")
	}
}

// mountSilently mounts a FUSE file system whose server answers the kernel's first request only, as a user can. The
// layout of the requests is that of Linux's include/uapi/linux/fuse.h.
func mountSilently(t *testing.T, at string) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("the test serves a file system: %v", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%[2]d", fd, play.Owner)
	if err := unix.Mount("silent", at, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Skipf("the test mounts: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH); _ = unix.Close(fd) })
	request := make([]byte, 1<<17)
	_, err = unix.Read(fd, request)
	must(t, err)
	answer := make([]byte, 16+64) // fuse_out_header, fuse_init_out
	binary.LittleEndian.PutUint32(answer, uint32(len(answer)))
	copy(answer[8:16], request[8:16])                // the request's number
	binary.LittleEndian.PutUint32(answer[16:], 7)    // the protocol's major version
	binary.LittleEndian.PutUint32(answer[20:], 31)   // and minor
	binary.LittleEndian.PutUint32(answer[36:], 4096) // max_write
	_, err = unix.Write(fd, answer)
	must(t, err)
	go func() {
		for err == nil {
			_, err = unix.Read(fd, request)
		}
	}()
}
