package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/slurm/cgroup"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// A door is the job's socket: it decides who comes in, before a byte is read.
//
// The kernel keeps out other users, by the mode of the socket: they cannot even fill the
// queue before it. Of those who connect, root and processes of this very job come in.
// The owner's connections are bounded, so that there is always a descriptor for root's.
type door struct {
	listener *net.UnixListener
	path     string
	job      uint32
	owner    owner.Owner
	proc     string        // where callers are looked up
	room     chan struct{} // holds one for each connection of the owner's
	log      *slog.Logger

	spare   *os.File // given up for a caller for whom there is no descriptor
	failing bool     // accept fails, and the log says so
}

// A caller is a connection that has come in.
type caller struct {
	*net.UnixConn
	root  bool
	leave func()
}

// openDoor makes the job's socket.
func (s *Server) openDoor() (*door, error) {
	free, err := freeDescriptors()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(s.plan.Run, "agent.sock")
	listener, err := listenFor(path, s.plan.Owner)
	if err != nil {
		return nil, err
	}
	return &door{
		listener: listener, path: path, job: s.plan.Job.ID.Job, owner: s.plan.Owner, proc: s.proc,
		room: make(chan struct{}, connections(s.plan, free)), log: s.set.Log,
	}, nil
}

// listenFor listens at path. The socket gets its name when it is the owner's: until then
// the agent is not up yet, which callers understand, and they are never told that they
// may not.
func listenFor(path string, as owner.Owner) (*net.UnixListener, error) {
	unnamed := path + ".new"
	_, _ = os.Remove(path), os.Remove(unnamed)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: unnamed, Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	if err = os.Chmod(unnamed, 0o600); err == nil {
		err = os.Chown(unnamed, int(as.UID), -1)
	}
	if err == nil {
		err = os.Rename(unnamed, path)
	}
	if err != nil {
		return nil, errors.Join(err, listener.Close(), os.Remove(unnamed))
	}
	return listener, nil
}

func (d *door) close() {
	_ = d.listener.Close()
	_ = os.Remove(d.path)
}

// accept returns the next caller who may come in, or why there will be none.
func (d *door) accept(ctx context.Context) (*caller, error) {
	for {
		d.holdSpare()
		conn, err := d.acceptSpared()
		switch {
		case err == nil:
			d.failing = false
			if c := d.admit(conn); c != nil {
				return c, nil
			}
		case ctx.Err() != nil || !passing(err):
			return nil, fmt.Errorf("accept on %s: %w", d.path, err)
		default:
			d.pause(ctx, err)
		}
	}
}

// holdSpare keeps a descriptor for the time when there is no other.
func (d *door) holdSpare() {
	if d.spare == nil {
		d.spare, _ = os.Open(os.DevNull)
	}
}

// acceptSpared gives up the spare descriptor where accept has none: who comes by it is
// judged, for which all but root would need another one.
func (d *door) acceptSpared() (*net.UnixConn, error) {
	conn, err := d.listener.AcceptUnix()
	if d.spare == nil || !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) {
		return conn, err
	}
	_ = d.spare.Close()
	d.spare = nil
	return d.listener.AcceptUnix()
}

// passing reports whether accept may do better after a while: a caller who has gone, a
// kernel short of something. It must not end the agent, and with it the VMs.
func passing(err error) bool {
	return slices.ContainsFunc([]error{
		unix.ECONNABORTED, unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EPROTO, unix.EPERM,
	}, func(known error) bool { return errors.Is(err, known) })
}

// acceptPause is how long accept is left alone when it fails.
const acceptPause = 50 * time.Millisecond

func (d *door) pause(ctx context.Context, err error) {
	if !d.failing {
		d.failing = true
		d.log.Warn("callers cannot be let in", "error", err)
	}
	select {
	case <-time.After(acceptPause):
	case <-ctx.Done():
	}
}

// admit lets a caller in or closes the connection.
func (d *door) admit(conn *net.UnixConn) *caller {
	peer, err := peerOf(conn)
	if err == nil && peer.Uid == 0 {
		return &caller{UnixConn: conn, root: true, leave: func() {}}
	}
	if err == nil {
		err = d.mayEnter(peer)
	}
	if err == nil {
		err = d.takeRoom()
	}
	if err != nil {
		d.refuse(conn, err)
		return nil
	}
	return &caller{UnixConn: conn, leave: func() { <-d.room }}
}

// mayEnter admits processes of this very job. The owner's uid alone is not enough: one
// of their jobs has no business in another.
func (d *door) mayEnter(peer *unix.Ucred) error {
	if peer.Uid != d.owner.UID {
		return fmt.Errorf("job %d belongs to %s", d.job, d.owner.Name)
	}
	job, err := cgroup.JobOf(d.proc, int(peer.Pid))
	if err != nil {
		return err
	}
	if job != d.job {
		return fmt.Errorf("the calling process is not part of job %d", d.job)
	}
	return nil
}

// takeRoom counts a connection of the owner's in.
func (d *door) takeRoom() error {
	select {
	case d.room <- struct{}{}:
		return nil
	default:
		return fmt.Errorf("the agent of job %d has %d connections already, the most that it serves at once", d.job, cap(d.room))
	}
}

// refuse says why in one line, for which a connection that has just been made has room.
func (d *door) refuse(conn *net.UnixConn, why error) {
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_ = nodeagent.NewConn(conn).WriteJSON(nodeagent.Reply{Error: why.Error()})
	_ = conn.Close()
}

const (
	// otherConnections are those of the owner that are no program's: the hold, runs that
	// have claimed a device or wait for one, consoles, forwarded ports.
	otherConnections = 512

	// otherDescriptors are left to root's connections, libvirt and logs.
	otherDescriptors = 64
)

// connections is how many the owner may have open: one for each program that may run,
// and others, as far as the agent has descriptors.
func connections(p plan.Plan, free int) int {
	return max(1, min(len(p.VMs)*p.Programs+otherConnections, free-otherDescriptors))
}

// freeDescriptors is how many more this process may open.
func freeDescriptors() (int, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("ask for the limit on open files: %w", err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	return int(min(limit.Cur, 1<<30)) - len(open), err
}

// peerOf asks the kernel who is at the other end.
func peerOf(conn *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	control := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if control != nil {
		return nil, control
	}
	return cred, err
}
