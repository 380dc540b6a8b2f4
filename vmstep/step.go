package vmstep

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// maxLines is how many lines of srun's output are kept from the beginning, and how many
// from the end: the first lines tell the cause of a failure, the last ones its course.
const maxLines = 100

// A step is one run of the VM step's srun.
type step struct {
	nodes int
	began time.Time
	rec   *history

	mu       sync.Mutex // srun's two streams are read at the same time
	assembly *Assembly
	ready    map[string]bool
	backends map[string]string // of nodes
	failure  *Failure          // the first one that was reported in a message
	lines    []string
	stdin    io.WriteCloser
	srun     int // pid
	kill     func()
}

func newStep(nodes int, rec *history) *step {
	return &step{nodes: nodes, began: time.Now(), rec: rec,
		assembly: NewAssembly(nodes), ready: map[string]bool{}, backends: map[string]string{}, kill: func() {}}
}

// run starts srun, waits for its end and records how it ended. The step's stdin
// stays open until then.
func (s *step) run(command, env []string) {
	err := s.start(command, env)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rec.add(s.outcome(err))
}

func (s *step) start(command, env []string) error {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = env
	read, err := s.launch(cmd)
	if err != nil {
		return fmt.Errorf("start the VM step: %w", err)
	}
	err = cmd.Wait()
	read()
	return err
}

// launch starts srun. read waits for the end of its output. launch holds the lock, so
// messages wait until stdin is there to answer them.
func (s *step) launch(cmd *exec.Cmd) (read func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out, err := newOutput(cmd)
	if err != nil {
		return nil, err
	}
	if s.stdin, err = cmd.StdinPipe(); err == nil {
		err = cmd.Start()
	}
	out.started()
	if err != nil {
		out.read()()
		return nil, err
	}
	s.srun = cmd.Process.Pid
	s.kill = func() { terminate(cmd.Process) }
	return out.read(s.frames(), s.frames()), nil
}

// frames returns a reader for one of srun's two streams.
func (s *step) frames() *Frames {
	return &Frames{Message: s.message, Other: s.other}
}

func (s *step) other(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lines) == 2*maxLines {
		s.lines = append(s.lines[:maxLines], s.lines[maxLines+1:]...)
	}
	s.lines = append(s.lines, line)
	if !ownNoise(line) {
		s.rec.add(Event{Text: line})
	}
}

func (s *step) message(m Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.take(m); err != nil {
		s.fail(Failure{Error: err.Error()})
		s.kill()
	}
}

func (s *step) take(m Message) error {
	switch m.Kind {
	case KindBackend:
		return s.takeBackend(m)
	case KindProgress:
		var p Progress
		if err := m.Decode(&p); err != nil {
			return err
		}
		s.rec.add(Event{Node: m.Node, Progress: &p})
	case KindVMs:
		return s.takeVMs(m)
	case KindReady:
		s.takeReady(m.Node)
	case KindFailed:
		var f Failure
		if err := m.Decode(&f); err != nil {
			return err
		}
		f.Error = onNode(m.Node, f.Error)
		s.fail(f)
	}
	return nil
}

// onNode puts the node's name before a sentence that does not contain it.
func onNode(node, sentence string) string {
	if strings.Contains(sentence, node) {
		return sentence
	}
	return "node " + node + ": " + sentence
}

func (s *step) takeVMs(m Message) error {
	var n nodeagent.NodeVMs
	if err := m.Decode(&n); err != nil {
		return err
	}
	if n.Node != m.Node {
		return fmt.Errorf("node %s announced the VMs of node %s", m.Node, n.Node)
	}
	if err := s.assembly.Add(n); err != nil {
		return fmt.Errorf("the nodes report contradictory VMs: %w", err)
	}
	if s.assembly.Complete() {
		go sendMap(s.stdin, s.assembly.Map())
	}
	return nil
}

// sendMap holds no lock, because it may have to wait for slow nodes. It fails only if srun
// is gone, and srun's end explains more than the write error.
func sendMap(w io.Writer, all []nodeagent.NodeVMs) {
	_ = WriteFrame(w, "all", KindMap, all)
}

func (s *step) takeReady(node string) {
	s.ready[node] = true
	if len(s.ready) == s.nodes && s.assembly.Complete() {
		dismissShepherd(s.srun)
		s.rec.add(Event{State: StateReady, Millis: s.millis(), Map: s.assembly.Map()})
	}
}

func (s *step) fail(f Failure) {
	if s.failure == nil {
		s.failure = &f
	}
}

func (s *step) millis() int64 { return time.Since(s.began).Milliseconds() }

// outcome says how the step ended. err may also say that srun was not found or could not
// run.
func (s *step) outcome(err error) Event {
	e := Event{State: StateFailed, Reason: s.reason(err), Millis: s.millis()}
	switch {
	case s.failure != nil && s.failure.Elsewhere:
		e.State = StateElsewhere
	case s.rec.current().State == StateReady:
		e.State = StateEnded
	}
	return e
}

func (s *step) reason(err error) string {
	var exit *exec.ExitError
	switch cause := causeIn(s.lines); {
	case s.failure != nil:
		return s.failure.Error
	case cause != "":
		return cause
	case errors.As(err, &exit):
		return "srun of the VM step ended: " + exit.String()
	case err != nil:
		return err.Error()
	}
	return "the VM step has ended"
}
