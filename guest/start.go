package guest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// The descriptors of a program's process, besides 0, 1 and 2.
const (
	launchFD = 3 // a socket: the startup, then nothing; closed when the program runs
	// Without PMIx, PMI, which stays open for the program. With it, a socket on which the run's
	// PMIx server sends environment variables. In that server, the socket to the agent.
	pmiFD = 4
	// With PMIx, PMI, which the run's PMIx server speaks for the program; see [keepPMI].
	serversPMI = 5
)

// A startup tells a program's process how to become the program.
type startup struct {
	Command Command `json:"command"`
	Procs   string  `json:"procs"`  // file of the cgroup to enter; "" none
	Server  bool    `json:"server"` // the program is [PMIxServer]
}

// start starts the program's process and the copying of its streams. After an error,
// release removes what start has made.
func (p *program) start(groups *Cgroups, servers *pmixServers) (err error) {
	if groups != nil {
		if p.group, err = groups.create(p.id); err != nil {
			return err
		}
	}
	var theirs ends
	defer theirs.close()
	if err := p.connect(&theirs); err != nil {
		return err
	}
	p.child = theirs.child()
	p.child.SysProcAttr.Setctty = p.tty != nil
	if err := p.child.Start(); err != nil {
		return fmt.Errorf("start a process: %w", err)
	}
	if theirs.server != nil {
		if err := servers.join(p, groups, theirs.server[0], theirs.server[1]); err != nil {
			_ = p.child.Process.Kill()
			_ = p.child.Wait()
			return errors.Join(err, servers.leave(p))
		}
	}
	p.copyStreams()
	return nil
}

// ends are the child's ends of its pipes, terminal and sockets.
type ends struct {
	stdio  []*os.File
	extra  []*os.File // descriptors 3 and up
	server []*os.File // for the PMIx server: PMI, and its end of a socket to the program
}

func (e *ends) close() {
	for _, f := range slices.Concat(e.stdio, e.extra, e.server) {
		_ = f.Close()
	}
}

// child runs this program once more, in a session of its own, where it calls [RunProgram].
func (e *ends) child() *exec.Cmd {
	return &exec.Cmd{
		Path:        "/proc/self/exe",
		Args:        []string{programName},
		Env:         []string{},
		Dir:         "/",
		Stdin:       e.stdio[0],
		Stdout:      e.stdio[1],
		Stderr:      e.stdio[2],
		ExtraFiles:  e.extra,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
}

// connect makes both ends of everything that connects the agent with the program.
func (p *program) connect(theirs *ends) (err error) {
	if p.cmd.Terminal != nil {
		err = p.terminal(theirs)
	} else {
		err = p.stdio(theirs)
	}
	if err != nil {
		return err
	}
	if p.launching, err = theirs.socket(); err != nil || !p.cmd.PMI {
		return err
	}
	if p.pmi, err = theirs.socket(); err == nil && p.cmd.PMIx {
		err = theirs.byServer()
	}
	return err
}

// byServer gives PMI to the PMIx server, too, and connects the child with that.
func (e *ends) byServer() error {
	last := len(e.extra) - 1
	pmi := e.extra[last]
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make a socket pair: %w", err)
	}
	e.server = []*os.File{pmi, os.NewFile(uintptr(fds[0]), "server's")}
	e.extra = append(e.extra[:last], os.NewFile(uintptr(fds[1]), "child's"), pmi)
	return nil
}

// launch tells the child which program to become, and returns when it has become the
// program or failed, with the MPI library that the program is linked with, if any. The
// command is sent over a socket and not as the child's own arguments and environment,
// because the child is root at first.
func (p *program) launch() (library string) {
	l := startup{Command: *p.cmd}
	if p.group != nil {
		l.Procs = p.group.procs()
	}
	_ = writeLine(p.launching, l)
	return readLibrary(p.launching)
}

// stdio makes a pipe for each of the program's standard streams.
func (p *program) stdio(theirs *ends) error {
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			return fmt.Errorf("make a pipe: %w", err)
		}
		if i == 0 {
			r, w = w, r // the program reads its stdin
		}
		p.pipes = append(p.pipes, r)
		theirs.stdio = append(theirs.stdio, w)
	}
	return nil
}

// terminal opens a terminal. The agent's one end of it is both stdin and stdout.
func (p *program) terminal(theirs *ends) error {
	tty, name, err := openTerminal(*p.cmd.Terminal, p.cmd.UID)
	if err != nil {
		return fmt.Errorf("open a terminal: %w", err)
	}
	p.tty = tty
	p.pipes = []*os.File{tty}
	end, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return fmt.Errorf("open a terminal: %w", err)
	}
	theirs.stdio = []*os.File{end, end, end}
	return nil
}

// socket makes a pair of connected sockets and returns the agent's end.
func (e *ends) socket() (*net.UnixConn, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a socket pair: %w", err)
	}
	e.extra = append(e.extra, os.NewFile(uintptr(fds[1]), "theirs"))
	ours := os.NewFile(uintptr(fds[0]), "ours")
	defer func() { _ = ours.Close() }()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, fmt.Errorf("make a socket pair: %w", err)
	}
	return conn.(*net.UnixConn), nil
}

// copyStreams connects the program's ends to its streams.
func (p *program) copyStreams() {
	stdin, stdout, stderr := p.streams[kindStdin], p.streams[kindStdout], p.streams[kindStderr]
	if p.tty != nil {
		p.others.Go(func() { typeIn(p.tty, stdin) })
		p.copyOut(stdout, p.tty)
		stderr.CloseWrite()
	} else {
		p.others.Go(func() { feed(p.pipes[0], stdin) })
		p.copyOut(stdout, p.pipes[1])
		p.copyOut(stderr, p.pipes[2])
	}
	if p.pmi != nil {
		p.others.Go(func() { joinConn(p.streams[kindPMI], p.pmi, p.losePMI) })
	}
}

// copyOut sends the program's output. When the stream's reader is gone, it closes the pipe,
// so that the program notices.
func (p *program) copyOut(st *stream, from *os.File) {
	p.output.Go(func() {
		_, _ = io.CopyBuffer(struct{ io.Writer }{st}, struct{ io.Reader }{from}, make([]byte, chunk))
		if p.server != nil {
			p.server.lastWords()
		}
		st.CloseWrite()
	})
	p.others.Go(func() {
		_, _ = io.Copy(io.Discard, struct{ io.Reader }{st})
		_ = from.Close()
	})
}

// feed writes the stream to the program's stdin. When no process reads stdin any more, it
// tells the host and drops the rest.
func feed(to *os.File, st *stream) {
	_, _ = io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{st})
	_ = to.Close()
	st.CloseWrite()
	_, _ = io.Copy(io.Discard, struct{ io.Reader }{st})
}

// typeIn writes the stream to a terminal. At the stream's end it types Ctrl-D.
func typeIn(tty *os.File, st *stream) {
	_, _ = io.Copy(struct{ io.Writer }{tty}, struct{ io.Reader }{st})
	_, _ = tty.Write([]byte{4}) // Ctrl-D
	st.CloseWrite()
	_, _ = io.Copy(io.Discard, struct{ io.Reader }{st})
}

// openTerminal opens a new terminal. It returns the agent's end and the name of the
// program's end, which it gives to the user.
func openTerminal(size WindowSize, uid uint32) (*os.File, string, error) {
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, "", err
	}
	number := 0
	err = control(tty, func(fd int) (err error) {
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		return err
	})
	name := filepath.Join("/dev/pts", fmt.Sprint(number))
	if err == nil {
		err = setSize(tty, size)
	}
	if err == nil {
		err = os.Chown(name, int(uid), -1)
	}
	if err != nil {
		_ = tty.Close()
		return nil, "", err
	}
	return tty, name, nil
}

func setSize(tty *os.File, size WindowSize) error {
	return control(tty, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Columns})
	})
}

// control calls f with the descriptor of a file, which stays non-blocking.
func control(file *os.File, f func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	if err := raw.Control(func(fd uintptr) { ferr = f(int(fd)) }); err != nil {
		return err
	}
	return ferr
}
