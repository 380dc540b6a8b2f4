package vmstep

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// addressCount is on how many abstract sockets a keeper may listen. Users who see one of
// the names in /proc/net/unix cannot compute the others from it.
const addressCount = 8

// Addresses returns abstract sockets; the keeper of a job listens on one of them. The name
// of an abstract socket vanishes with the process that has bound it.
//
// Any user can bind any name. So the names come from a secret that only the job's own
// processes have ([Job.Secret]), and keeper and clients pass over names that another user
// holds.
func Addresses(uid int, job Job) []string {
	all := make([]string, addressCount)
	for i := range all {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %d %s", uid, job, i, job.Secret))
		all[i] = fmt.Sprintf("@slurmv/%x", sum)
	}
	return all
}

// ErrKept says that another keeper of the job listens already.
var ErrKept = errors.New("the job has a keeper")

// Listen binds the first of the addresses that is free. It returns [ErrKept] if a
// process of this user answers at any of them.
func Listen(addresses []string) (net.Listener, error) {
	var held heldNames
	for _, address := range addresses {
		l, err := net.Listen("unix", address)
		if err == nil {
			return alone(l, addresses)
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, err
		}
		conn, err := reach(context.Background(), address)
		if err == nil {
			_ = conn.Close()
			return nil, ErrKept
		}
		held = append(held, err)
	}
	return nil, held
}

// alone closes l if another keeper listens at another address. Two keepers that start at
// once can each have found a different name free. Both listen before they look, so at least
// one of them steps back. If both do, their clients start another keeper.
func alone(l net.Listener, addresses []string) (net.Listener, error) {
	others := slices.DeleteFunc(slices.Clone(addresses), func(a string) bool { return a == l.Addr().String() })
	conn, err := reachAny(context.Background(), others)
	if err != nil {
		return l, nil
	}
	_ = conn.Close()
	_ = l.Close()
	return nil, ErrKept
}

// queuePatience bounds how long a full queue of connections is taken for a busy keeper's.
// Another user's socket also has a full queue, for ever, and does not show its owner.
const queuePatience = time.Second

// reachAny connects to the first of the addresses where a process of this user answers. If
// none answers, the error is always ECONNREFUSED.
func reachAny(ctx context.Context, addresses []string) (net.Conn, error) {
	for until := time.Now().Add(queuePatience); ; {
		conn, full := tryAll(ctx, addresses)
		if conn != nil {
			return conn, nil
		}
		if !full || time.Now().After(until) || !sleep(ctx, 20*time.Millisecond) {
			return nil, syscall.ECONNREFUSED
		}
	}
}

// tryAll returns a connection to a process of this user, or whether the queue of an address
// is full.
func tryAll(ctx context.Context, addresses []string) (conn net.Conn, full bool) {
	for _, address := range addresses {
		conn, err := reach(ctx, address)
		if err == nil {
			return conn, false
		}
		full = full || errors.Is(err, syscall.EAGAIN)
	}
	return nil, full
}

// reach connects to a process of this user.
func reach(ctx context.Context, address string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", address)
	if err != nil {
		return nil, err
	}
	if err := samePeer(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// heldNames has one error for each address, which says why no keeper can be there.
type heldNames []error

// Error names the users who hold the addresses.
func (h heldNames) Error() string {
	var holders []string
	for _, err := range h {
		holder := "a process that answers nobody"
		var other *foreignPeerError
		if errors.As(err, &other) {
			holder = other.name()
		}
		if !slices.Contains(holders, holder) {
			holders = append(holders, holder)
		}
	}
	return fmt.Sprintf("all %d socket names of this job are taken, by %s; tell the administrators of this site", len(h), strings.Join(holders, " and "))
}

// A foreignPeerError says that the other end of a connection belongs to another user.
type foreignPeerError struct{ uid uint32 }

func (e *foreignPeerError) Error() string { return "the other end belongs to " + e.name() }

func (e *foreignPeerError) name() string {
	number := strconv.FormatUint(uint64(e.uid), 10)
	if u, err := user.LookupId(number); err == nil {
		return "the user " + u.Username
	}
	return "user " + number
}

// samePeer returns an error unless the other end is a process of the same user. It is
// needed because any user can bind the name of an abstract socket.
func samePeer(conn net.Conn) error {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return errors.New("not a unix socket")
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return err
	}
	var cred *syscall.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err = errors.Join(err, credErr); err != nil {
		return err
	}
	if int(cred.Uid) != os.Getuid() {
		return &foreignPeerError{cred.Uid}
	}
	return nil
}
