package owner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// StartServer starts a process that takes connections by [NextConnection], and waits until it
// has said by [Report] that it does. It returns the control socket, which is the process'
// descriptor 3; those of more come after it. The process ends when the socket is closed. ctx
// bounds the wait.
func StartServer(ctx context.Context, c *exec.Cmd, name string, more ...*os.File) (control *os.File, err error) {
	control, theirs, err := socketPair(name)
	if err != nil {
		return nil, err
	}
	c.ExtraFiles = append([]*os.File{theirs}, more...)
	err = c.Start()
	theirs.Close() // so that the end of the process is the end of the connection
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start its process: %w", err), control.Close())
	}
	go func() { _ = c.Wait() }()
	if err := awaitReport(ctx, control); err != nil {
		_ = c.Process.Kill() // it may wait for a file server
		return nil, errors.Join(err, control.Close())
	}
	return control, nil
}

// Report tells the process that waits in [StartServer] that this one takes connections, or
// that err has prevented it. It returns err.
func Report(control int, err error) error {
	word := []byte{ready}
	if err != nil {
		word = []byte(err.Error())
	}
	_, sendErr := unix.Write(control, word)
	return errors.Join(err, sendErr)
}

// ready is the word of a process that takes connections. Any other word is an error's.
const ready = 0

// maxReport bounds what is read of a report, in bytes.
const maxReport = 4096

// awaitReport reads the word of [Report].
func awaitReport(ctx context.Context, control *os.File) error {
	defer context.AfterFunc(ctx, func() { _ = control.SetReadDeadline(time.Now()) })()
	word := make([]byte, maxReport)
	n, err := control.Read(word)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, io.EOF):
		return errors.New("its process has ended before it was ready")
	case err != nil:
		return fmt.Errorf("wait for its process: %w", err)
	case n == 1 && word[0] == ready:
		return nil
	}
	var said Tail // the owner may have chosen the words
	_, _ = said.Write(word[:n])
	return errors.New(said.Line())
}

// HandOver makes a connection, sends one end of it through a control socket to a process that
// takes it by [NextConnection], and returns the other end. Reads and writes of it are whole
// messages.
func HandOver(control *os.File, name string) (io.ReadWriteCloser, error) {
	ours, theirs, err := socketPair(name)
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
	fd, err := passed(rights[:length])
	if err == nil && fd < 0 {
		err = errors.New("a message without a connection")
	}
	return fd, err
}
