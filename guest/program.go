package guest

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// A program is a program that the guest runs, or is about to run.
type program struct {
	id      string
	cmd     *Command
	control *stream

	mu       sync.Mutex
	streams  map[string]*stream // those that have come; nil once the program has ended
	complete chan struct{}      // closed when all streams have come

	group     *cgroup     // nil without cgroups
	server    *pmixServer // nil without PMIx
	lost      atomic.Bool // the server has ended before the program
	child     *exec.Cmd
	launching *net.UnixConn // to the child, until the child has become the program
	reaped    bool          // the child's pid may belong to another process now

	tty   *os.File
	pipes []*os.File    // the agent's ends
	pmi   *net.UnixConn // the agent's end

	output sync.WaitGroup // goroutines that copy the program's output
	others sync.WaitGroup // goroutines that copy other streams
}

// program runs a program, from its request to the confirmation that nothing of it is left.
func (s *Server) program(control *stream, cmd *Command) {
	defer control.Finish()
	p := &program{cmd: cmd, control: control, streams: map[string]*stream{}, complete: make(chan struct{})}
	err := cmd.check()
	if err == nil {
		err = s.register(p)
	}
	if err != nil {
		_ = writeLine(control, event{Error: err.Error()})
		return
	}
	defer func() {
		if s.forget(p) {
			ownShmFiles.sweep(cmd.UID)
		}
	}()
	_ = writeLine(control, event{Program: p.id})

	orders := p.readOrders()
	defer p.closeStreams()
	if !p.await(orders) {
		return
	}
	if err := p.start(s.Cgroups, &s.pmix); err != nil {
		s.log().Error("program not started", "program", cmd.Args[0], "err", err)
		_ = writeLine(control, event{Error: err.Error()})
		_ = p.release()
		go drain(orders)
		return
	}
	p.attend(orders)
	if err := errors.Join(p.release(), s.pmix.leave(p)); err != nil {
		s.log().Error("program not cleaned up", "program", cmd.Args[0], "err", err)
	} else {
		_ = writeLine(control, event{Gone: true})
	}
	control.CloseWrite()
}

func drain(orders <-chan order) {
	for range orders {
	}
}

// readOrders returns the host's orders. The channel is closed when no more can come.
func (p *program) readOrders() <-chan order {
	orders := make(chan order)
	go func() {
		defer close(orders)
		for {
			var o order
			if err := p.control.readJSON(&o, maxAnswer); err != nil {
				return
			}
			orders <- o
		}
	}()
	return orders
}

// offer takes a stream of the program. It refuses a stream that the program already has or
// does not want.
func (p *program) offer(kind string, st *stream) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.streams == nil || p.streams[kind] != nil || kind == kindPMI && !p.cmd.PMI {
		return false
	}
	p.streams[kind] = st
	if len(p.streams) == p.wanted() {
		close(p.complete)
	}
	return true
}

func (p *program) wanted() int {
	if p.cmd.PMI {
		return 4
	}
	return 3
}

// await waits until all streams have come, or the host gives up.
func (p *program) await(orders <-chan order) bool {
	for {
		select {
		case <-p.complete:
			return true
		case _, open := <-orders:
			if !open {
				return false
			}
		}
	}
}

// closeStreams ends the streams that have come. After it, offer refuses further ones.
func (p *program) closeStreams() {
	p.mu.Lock()
	streams := p.streams
	p.streams = nil
	p.mu.Unlock()
	for _, st := range streams {
		st.Abandon()
	}
	p.others.Wait()
	for _, st := range streams {
		st.Finish()
	}
}

// attend tells the host when the program runs, and when it has ended and its output is
// sent. Meanwhile it obeys orders. When no more orders can come, it kills the program.
func (p *program) attend(orders <-chan order) {
	exited, ended := make(chan event, 1), make(chan struct{})
	go func() { exited <- p.live(ended) }()
	for done := false; ; {
		select {
		case o, open := <-orders:
			if !open {
				p.kill()
				p.giveUp()
				if !done {
					<-exited
					close(ended)
				}
				return
			}
			p.obey(o)
		case exit := <-exited:
			done = true
			close(ended)
			_ = writeLine(p.control, exit)
		}
	}
}

// live tells the host that the program runs, and returns how it has ended. What it has mapped is looked at once more
// then: the host judges the program by its end.
func (p *program) live(ended <-chan struct{}) event {
	pid := p.child.Process.Pid
	if p.cmd.PMI {
		ownMappings.add(pid)
		defer ownMappings.remove(pid)
	}
	library := p.launch()
	_ = writeLine(p.control, event{Started: true, MPI: library})
	watched := library == "" && p.cmd.PMI
	if watched {
		go p.watchLibrary(ended)
	}
	exit := p.reap()
	if watched {
		library = p.library()
	}
	return event{Exit: &exit, MPI: library}
}

// watchLibrary tells the host if the program loads an MPI library later, as Python does.
func (p *program) watchLibrary(ended <-chan struct{}) {
	if library := p.awaitLibrary(ended); library != "" {
		_ = writeLine(p.control, event{MPI: library})
	}
}

// giveUp makes all copying end at once.
func (p *program) giveUp() {
	for _, st := range p.streams {
		st.Abandon()
	}
	p.closePipes()
}

func (p *program) obey(o order) {
	if o.Size != nil && p.tty != nil {
		_ = setSize(p.tty, *o.Size)
	}
	switch sig := syscall.Signal(o.Signal); {
	case sig == syscall.SIGKILL:
		p.kill()
	case sig > 0 && sig <= 64:
		p.signal(sig)
	}
}

// signal signals the program's process group.
func (p *program) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = unix.Kill(-p.child.Process.Pid, sig)
	}
}

// kill kills the program and everything it started. It waits until the cgroup is empty.
func (p *program) kill() {
	p.signal(syscall.SIGKILL)
	if p.group != nil {
		p.group.kill()
	}
}

// reap waits until the program has ended, kills its other processes, as slurmstepd does,
// and waits until its output is sent.
func (p *program) reap() Exit {
	// The child stays a zombie until the lock is held, so nobody signals a stranger with
	// the same pid.
	_ = waitExit(p.child.Process.Pid)
	p.signal(syscall.SIGKILL)
	p.mu.Lock()
	p.reaped = true
	_ = p.child.Wait() // an exit code is no error here
	p.mu.Unlock()
	if p.group != nil {
		p.group.kill()
	}
	p.streams[kindStdin].CloseWrite()
	p.output.Wait()
	if p.lost.Load() {
		return Exit{Code: 1}
	}
	return exitOf(p.child)
}

// say writes a line to the program's standard error, for the agent. It reports whether there was
// one any more.
func (p *program) say(line []byte) bool {
	kind := kindStderr
	if p.tty != nil {
		kind, line = kindStdout, bytes.ReplaceAll(line, []byte("\n"), []byte("\r\n"))
	}
	p.mu.Lock()
	st := p.streams[kind]
	p.mu.Unlock()
	if st == nil {
		return false
	}
	_, err := st.Write(line)
	return err == nil
}

// waitExit waits until the child with that pid is a zombie.
func waitExit(pid int) error {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func exitOf(child *exec.Cmd) Exit {
	status := child.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return Exit{Signal: int(status.Signal())}
	}
	return Exit{Code: status.ExitStatus()}
}

// release removes the program's pipes and its cgroup.
func (p *program) release() error {
	p.closePipes()
	p.output.Wait()
	if p.group == nil {
		return nil
	}
	return p.group.remove()
}

func (p *program) closePipes() {
	for _, f := range p.pipes {
		_ = f.Close()
	}
	for _, conn := range []*net.UnixConn{p.launching, p.pmi} {
		if conn != nil {
			_ = conn.Close()
		}
	}
}
