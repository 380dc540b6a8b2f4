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
	"github.com/slurm-v/slurm-v/internal/process"
	"github.com/slurm-v/slurm-v/slurm/cgroup"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// A door is the job's socket. It decides which callers come in, before it reads a byte from
// them.
//
// The socket's mode keeps out other users: they cannot even fill its queue. Of the callers
// who connect, root and processes of this very job come in. The number of the owner's
// connections is bounded, so there is always a descriptor for root's.
type door struct {
	listener *net.UnixListener
	path     string
	job      uint32
	owner    owner.Owner
	proc     string        // where /proc is mounted; callers are looked up there
	room     chan struct{} // has one element for each connection of the owner
	log      *slog.Logger

	spare   *os.File // closed to accept a caller when descriptors have run out
	failing bool     // accept fails, and this has been logged
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

// listenFor listens at path. The socket gets this name only once it belongs to the owner.
// Callers that come earlier find no socket and understand that the agent is not up yet;
// they would otherwise be told that access is denied.
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

// accept returns the next caller who may come in, or why no further one will.
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

// holdSpare opens the spare descriptor, if it is closed.
func (d *door) holdSpare() {
	if d.spare == nil {
		d.spare, _ = os.Open(os.DevNull)
	}
}

// acceptSpared accepts a connection. If the process has no descriptor left, it closes the
// spare one for it, so that root always gets in: to admit any other caller takes a second
// descriptor, so others are refused.
func (d *door) acceptSpared() (*net.UnixConn, error) {
	conn, err := d.listener.AcceptUnix()
	if d.spare == nil || !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) {
		return conn, err
	}
	_ = d.spare.Close()
	d.spare = nil
	return d.listener.AcceptUnix()
}

// passing reports whether accept may succeed later: the caller has gone, or the kernel is
// short of something. Such an error must not end the agent, because the VMs would end with
// it.
func passing(err error) bool {
	return slices.ContainsFunc([]error{
		unix.ECONNABORTED, unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EPROTO, unix.EPERM,
	}, func(known error) bool { return errors.Is(err, known) })
}

// acceptPause is the pause after accept has failed.
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
	peer, err := process.Peer(conn)
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

// mayEnter admits processes of this very job. The owner's uid is not enough: the owner's
// other jobs must stay out.
func (d *door) mayEnter(peer *unix.Ucred) error {
	if peer.Uid != d.owner.UID {
		return fmt.Errorf("job %d belongs to %s", d.job, d.owner.Name)
	}
	job, err := cgroup.JobOf(d.proc, int(peer.Pid))
	if err != nil {
		return err
	}
	// This process is in a cgroup of the job: CheckStep or StepOf made sure of it.
	ours, err := cgroup.JobOf(d.proc, os.Getpid())
	if err != nil {
		return err
	}
	if job != ours {
		return fmt.Errorf("the calling process is not part of job %d", d.job)
	}
	return nil
}

// takeRoom counts a connection of the owner in, or refuses it.
func (d *door) takeRoom() error {
	select {
	case d.room <- struct{}{}:
		return nil
	default:
		return fmt.Errorf("the agent of job %d has %d connections already, the most that it serves at once", d.job, cap(d.room))
	}
}

// refuse writes the reason in one line and closes the connection. The line fits into the
// new connection's buffer, so writing it does not block.
func (d *door) refuse(conn *net.UnixConn, why error) {
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_ = nodeagent.NewConn(conn).WriteJSON(nodeagent.Reply{Error: why.Error()})
	_ = conn.Close()
}

const (
	// otherConnections is how many connections the owner may have beside those of programs:
	// the hold, runs that have claimed a device or wait for one, consoles, forwarded ports.
	otherConnections = 512

	// otherDescriptors is how many descriptors are kept free for root's connections,
	// libvirt and logs.
	otherDescriptors = 64
)

// connections is how many connections the owner may have: one for each program that may run
// and otherConnections more, as far as the agent has descriptors.
func connections(p plan.Plan, free int) int {
	return max(1, min(len(p.VMs)*p.Programs+otherConnections, free-otherDescriptors))
}

// freeDescriptors is how many more descriptors this process may open.
func freeDescriptors() (int, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("ask for the limit on open files: %w", err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	return int(min(limit.Cur, 1<<30)) - len(open), err
}
