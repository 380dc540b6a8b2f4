package owner

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// HandOver makes a connection, sends one end of it through a control socket to a process that
// takes it by [NextConnection], and returns the other end. Reads and writes of it are whole
// messages.
func HandOver(control *os.File, name string) (io.ReadWriteCloser, error) {
	ours, theirs, err := SocketPair(name)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	if err := unix.Sendmsg(int(control.Fd()), []byte{0}, unix.UnixRights(int(theirs.Fd())), nil, 0); err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	return ours, nil
}

// NextConnection waits at a control socket and returns the next connection, or -1 if no more
// will come.
func NextConnection(control int) (int, error) {
	answer, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	var n, length int
	err := error(unix.EINTR)
	for err == unix.EINTR { //nolint:errorlint // an error number
		n, length, _, _, err = unix.Recvmsg(control, answer, rights, unix.MSG_CMSG_CLOEXEC)
	}
	if err != nil || n == 0 {
		return -1, err
	}
	fd, err := Passed(rights[:length])
	if err == nil && fd < 0 {
		err = errors.New("a message without a connection")
	}
	return fd, err
}
