package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
)

// A Process is a program in a VM, seen from the host.
type Process struct {
	// Stdin is the program's standard input. Write fails with [io.ErrClosedPipe] once no
	// process in the VM reads it any more. Close sends end of file.
	Stdin io.WriteCloser
	// Stdout and Stderr end when the program and all its children have closed them. Closing
	// one of them earlier looks to the program like a closed pipe.
	Stdout, Stderr io.ReadCloser
	// PMI is the other end of the program's PMI_FD; nil if the command does not ask for
	// PMI.
	PMI io.ReadWriteCloser

	session *Session
	control *stream
	streams []*stream

	mpi atomic.Value // a string, see MPI

	exited chan struct{} // closed when exit or err is set
	exit   *Exit
	err    error         // why exit is unknown
	ended  chan struct{} // closed at the end of the guest's events; gone is final then
	gone   bool
}

// Start starts a program in the VM and waits until it runs. It does not fail if the program
// cannot be executed: the program's stderr and exit code then say so, as in a Slurm task.
func (s *Session) Start(ctx context.Context, cmd Command) (*Process, error) {
	if err := cmd.check(); err != nil {
		return nil, err
	}
	p, err := s.start(ctx, cmd)
	if err != nil {
		return nil, fmt.Errorf("start %.80q in the VM: %w", cmd.Args[0], err)
	}
	return p, nil
}

func (s *Session) start(ctx context.Context, cmd Command) (_ *Process, err error) {
	control, err := s.open(ctx, Header{Kind: kindProgram, Command: &cmd})
	if err != nil {
		return nil, err
	}
	p := &Process{session: s, control: control, exited: make(chan struct{}), ended: make(chan struct{})}
	defer func() {
		if err != nil {
			p.finish()
		}
	}()
	accepted, err := s.event(ctx, control)
	if err != nil {
		return nil, err
	}
	if err := p.attach(ctx, accepted.Program, cmd.PMI); err != nil {
		return nil, err
	}
	if started, err := s.event(ctx, control); err != nil {
		return nil, err
	} else if !started.Started {
		return nil, errors.New("the guest does not say that it runs")
	} else {
		p.uses(started.MPI)
	}
	go p.follow()
	return p, nil
}

// event reads an event. If the event has an error, event returns it.
func (s *Session) event(ctx context.Context, control *stream) (e event, err error) {
	stop := context.AfterFunc(ctx, control.Abandon)
	err = control.readJSON(&e, maxAnswer)
	switch {
	case !stop():
		return e, context.Cause(ctx)
	case err != nil:
		return e, s.cause(err)
	case e.Error != "":
		return e, errors.New(printable(e.Error))
	}
	return e, nil
}

// attach opens the streams of the program with that id.
func (p *Process) attach(ctx context.Context, id string, pmi bool) error {
	kinds := []string{kindStdin, kindStdout, kindStderr, kindPMI}
	if !pmi {
		kinds = kinds[:3]
	}
	for _, kind := range kinds {
		st, err := p.session.open(ctx, Header{Kind: kind, Program: id})
		if err != nil {
			return err
		}
		p.streams = append(p.streams, st)
	}
	p.Stdin = newInput(p.streams[0])
	p.Stdout = &output{stream: p.streams[1]}
	p.Stderr = &output{stream: p.streams[2]}
	if pmi {
		p.PMI = &dialed{stream: p.streams[3]}
	}
	return nil
}

// finish closes the streams of a program that did not start.
func (p *Process) finish() {
	for _, st := range append(p.streams, p.control) {
		go st.Finish()
	}
}

// follow reads events until the control stream ends.
func (p *Process) follow() {
	defer close(p.ended)
	settled := false
	for {
		var e event
		err := p.control.readJSON(&e, maxAnswer)
		p.gone = p.gone || e.Gone
		p.uses(e.MPI)
		if !settled {
			settled = p.settle(e, err)
		}
		if err != nil {
			go p.control.Finish()
			return
		}
	}
}

// uses notes which MPI library the guest has found.
func (p *Process) uses(library string) {
	if library != "" {
		p.mpi.Store(printable(library))
	}
}

// MPI returns the name of the MPI library that the program uses, such as libmpi.so.40; "" if
// the guest has found none. The guest looks only if the program has PMI.
func (p *Process) MPI() string {
	library, _ := p.mpi.Load().(string)
	return library
}

// settle sets the program's exit or error from an event. It reports whether the event
// decides.
func (p *Process) settle(e event, err error) bool {
	switch {
	case err != nil:
		p.err = p.session.cause(err)
	case e.Error != "":
		p.err = errors.New(printable(e.Error))
	case e.Exit != nil:
		p.exit = e.Exit
	default:
		return false
	}
	close(p.exited)
	return true
}

// Signal sends a signal to the program's process group. SIGKILL goes to all processes that
// the program started. Signalling a program that has ended is not an error.
func (p *Process) Signal(sig syscall.Signal) error {
	return p.send(order{Signal: int(sig)})
}

// Resize tells the program's terminal its new size.
func (p *Process) Resize(size WindowSize) error {
	return p.send(order{Size: &size})
}

func (p *Process) send(o order) error {
	select {
	case <-p.exited:
		return nil
	default:
	}
	if err := writeLine(p.control, o); err != nil {
		return p.session.cause(err)
	}
	return nil
}

// Wait returns how the program ended. The rest of its output may still be on its way: it is
// complete at the ends of Stdout and Stderr. An error says that the program's end is
// unknown; it matches [ErrLost] if the channel ended.
func (p *Process) Wait() (Exit, error) {
	<-p.exited
	if p.exit == nil {
		return Exit{}, fmt.Errorf("wait for the program in the VM: %w", p.err)
	}
	return *p.exit, nil
}

// Close kills the rest of the program, closes its streams and returns when the guest
// confirms that nothing of it is left. Without this confirmation it returns an error. It
// may be called again.
func (p *Process) Close() error {
	p.control.CloseWrite()
	for _, st := range p.streams {
		go st.Finish()
	}
	<-p.ended
	if !p.gone {
		return fmt.Errorf("end the program in the VM: %w", p.unconfirmed())
	}
	return nil
}

func (p *Process) unconfirmed() error {
	if p.session.mux.IsClosed() {
		return p.session.cause(nil)
	}
	return fmt.Errorf("%w: the guest does not confirm it", ErrLost)
}

// An input is a program's stdin. The guest closes its direction of the stream when no
// process reads stdin any more.
type input struct {
	*stream
	closed chan struct{}
}

func newInput(st *stream) *input {
	in := &input{st, make(chan struct{})}
	go func() {
		_, _ = io.Copy(io.Discard, st.raw)
		close(in.closed)
		_ = st.raw.SetWriteDeadline(past)
	}()
	return in
}

func (in *input) Write(p []byte) (int, error) {
	if in.unread() {
		return 0, io.ErrClosedPipe
	}
	n, err := in.stream.Write(p)
	if err != nil && in.unread() {
		err = io.ErrClosedPipe
	}
	return n, err
}

func (in *input) unread() bool {
	select {
	case <-in.closed:
		return true
	default:
		return false
	}
}

func (in *input) Close() error {
	in.CloseWrite()
	return nil
}

// An output is a program's stdout or stderr.
type output struct {
	*stream
	once sync.Once
}

func (out *output) Read(p []byte) (int, error) {
	n, err := out.stream.Read(p)
	if err != nil {
		out.CloseWrite()
	}
	return n, err
}

// Close tells the program that nobody reads the output any more.
func (out *output) Close() error {
	out.once.Do(func() { go out.Finish() })
	return nil
}
