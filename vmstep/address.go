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

// addressCount is how many abstract sockets a keeper may listen on. Somebody who sees one in
// /proc/net/unix learns nothing of the others.
const addressCount = 8

// Addresses returns the abstract sockets on one of which the keeper of a job listens.
// Such a name vanishes with the process that has bound it.
//
// Anybody can bind any name, so those of a job come from a secret which only its own
// processes have ([Job.Secret]), and names that somebody else holds are passed over.
func Addresses(uid int, job Job) []string {
	all := make([]string, addressCount)
	for i := range all {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %d %s", uid, job, i, job.Secret))
		all[i] = fmt.Sprintf("@slurmv/%x", sum)
	}
	return all
}

// ErrKept is that another keeper of the job listens already.
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

// alone closes l if another keeper listens at another address. Two that start at once
// can each have found a different name free. Both listen before they look, so at least
// one of them steps back; if both do, their clients start another.
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

// queuePatience bounds how long a full queue of connections is taken for that of a busy
// keeper. Somebody else's stays full, and does not say whose it is.
const queuePatience = time.Second

// reachAny connects to the first of the addresses where a process of this user answers.
// All errors are as if nobody listened.
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

// tryAll returns a connection to a process of this user, or whether a queue is full.
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

// heldNames says of each address why it is no keeper's.
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

// A foreignPeerError is that the other end of a connection is another user's.
type foreignPeerError struct{ uid uint32 }

func (e *foreignPeerError) Error() string { return "the other end belongs to " + e.name() }

func (e *foreignPeerError) name() string {
	number := strconv.FormatUint(uint64(e.uid), 10)
	if u, err := user.LookupId(number); err == nil {
		return "the user " + u.Username
	}
	return "user " + number
}

// samePeer returns an error unless the other end is a process of the same user:
// names of abstract sockets are anybody's.
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
