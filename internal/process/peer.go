package process

import (
	"net"

	"golang.org/x/sys/unix"
)

// Peer asks the kernel which process is at the other end of a connection, and whose it is.
func Peer(conn *net.UnixConn) (cred *unix.Ucred, err error) {
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
