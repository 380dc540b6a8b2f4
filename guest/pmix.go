package guest

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/environ"
)

// pmixServers are the PMIx servers in this VM: processes that serve the ranks of one run each; see
// internal/pmix. The agent starts one when the first rank of a run comes, and hands it each rank's
// PMI descriptor. It is in a cgroup of its own: it outlives each rank but not the last.
type pmixServers struct {
	path string // of slurmv-pmix; "" is where the host puts it

	mu sync.Mutex
	of map[pmixRun]*pmixServer
}

// A pmixRun names a run among those that have ranks in this VM.
type pmixRun struct {
	uid       uint32
	job, step string
}

func runOf(cmd *Command) pmixRun {
	env := []string(cmd.Env)
	return pmixRun{cmd.UID, environ.Value(env, "SLURM_JOB_ID"), environ.Value(env, "SLURM_STEP_ID")}
}

// A pmixServer is the server of one run.
type pmixServer struct {
	run     pmixRun
	child   *exec.Cmd
	group   *cgroup       // nil without cgroups
	control *net.UnixConn // ranks go over it; its end ends the server
	ended   chan struct{} // closed when the process has ended

	mu    *sync.Mutex // that of pmixServers
	ranks []*program  // that have come and not left
}

// join hands a program to the server of its run. The descriptors are the program's ends: of PMI,
// and of the socket on which its process awaits its environment.
func (s *pmixServers) join(p *program, groups *Cgroups, pmi, process *os.File) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	run := runOf(p.cmd)
	server := s.of[run]
	if server == nil {
		var err error
		if server, err = s.start(p.cmd, groups); err != nil {
			return fmt.Errorf("start the run's PMIx server: %w", err)
		}
		if s.of == nil {
			s.of = map[pmixRun]*pmixServer{}
		}
		s.of[run] = server
	}
	server.ranks = append(server.ranks, p)
	p.server = server
	return server.send(p.cmd, pmi, process)
}

// leave takes a program from its server. The last one takes the server along; leave then returns
// when nothing of it is left.
func (s *pmixServers) leave(p *program) error {
	if p.server == nil {
		return nil
	}
	s.mu.Lock()
	server := p.server
	server.ranks = slices.DeleteFunc(server.ranks, func(other *program) bool { return other == p })
	last := len(server.ranks) == 0
	if last {
		delete(s.of, server.run)
	}
	s.mu.Unlock()
	if !last {
		return nil
	}
	return server.end()
}

// start starts the server of the run to which cmd belongs, as its user. It is not given what the
// user preloads into programs.
func (s *pmixServers) start(cmd *Command, groups *Cgroups) (_ *pmixServer, err error) {
	server := &pmixServer{run: runOf(cmd), ended: make(chan struct{}), mu: &s.mu}
	l := startup{Command: *cmd, Server: true}
	l.Command.Args = Strings{cmp.Or(s.path, filepath.Join(MPIDir, PMIxServer))}
	l.Command.Env, l.Command.Dir = serverEnv(cmd.Env), "/"
	l.Command.PMI, l.Command.PMIx = false, false
	if groups != nil {
		if server.group, err = groups.create("pmix-" + newID()); err != nil {
			return nil, err
		}
		l.Procs = server.group.procs()
	}
	if err := server.spawn(l); err != nil {
		if server.group != nil {
			err = errors.Join(err, server.group.remove())
		}
		return nil, err
	}
	return server, nil
}

// serverEnv is the environment of a server: that of a rank, without what is about the rank, and
// without libraries that the user loads into programs.
func serverEnv(env []string) Strings {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		return strings.HasPrefix(v, "LD_PRELOAD=") || strings.HasPrefix(v, "LD_AUDIT=") || strings.HasPrefix(v, "PMI_")
	})
}

// spawn starts the server's process.
func (server *pmixServer) spawn(l startup) error {
	var theirs ends
	defer theirs.close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	errs, stderr, err := os.Pipe()
	if err != nil {
		return errors.Join(err, null.Close())
	}
	theirs.stdio = []*os.File{null, null, stderr}
	launching, err := theirs.socket()
	if err == nil {
		server.control, err = theirs.socket()
	}
	if err == nil {
		server.child = theirs.child()
		err = server.child.Start()
	}
	if err != nil {
		_ = errs.Close()
		return err
	}
	_ = writeLine(launching, l) // its end says nothing: the server's end does
	_ = launching.Close()
	go server.watch(errs)
	return nil
}

// send hands a rank to the server. If that has ended, the rank finds out as the others do.
func (server *pmixServer) send(cmd *Command, pmi, process *os.File) error {
	var message []byte
	for _, name := range []string{"PMI_RANK", "PMI_SIZE"} {
		text := environ.Value(cmd.Env, name)
		number, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return fmt.Errorf("--mpi=pmix: Slurm has not told the program its rank: %s=%q", name, text)
		}
		message = binary.NativeEndian.AppendUint32(message, uint32(number))
	}
	rights := unix.UnixRights(int(pmi.Fd()), int(process.Fd()))
	if _, _, err := server.control.WriteMsgUnix(message, rights, nil); err != nil && !errors.Is(err, unix.EPIPE) {
		return fmt.Errorf("hand the rank to the run's PMIx server: %w", err)
	}
	return nil
}

// patience bounds how long a sentence of the server may wait for a reader.
const patience = 5 * time.Second

// watch passes on what the server says, until it ends. If that is before its last rank has left,
// the ranks cannot go on: watch ends them, and says why.
func (server *pmixServer) watch(errs *os.File) {
	said := make(chan struct{})
	go func() {
		defer close(said)
		server.passOn(errs)
	}()
	_ = server.child.Wait() // its state says more
	select {
	case <-said:
	case <-time.After(patience):
	}
	_ = errs.Close()
	server.bereave()
	close(server.ended)
}

// passOn says each line of the server to a rank's user.
func (server *pmixServer) passOn(errs io.Reader) {
	for in := bufio.NewReader(errs); ; {
		line, err := in.ReadSlice('\n')
		if len(line) > 0 {
			server.say(line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// say writes to the standard error of the first rank that still has one.
func (server *pmixServer) say(line []byte) {
	for _, p := range server.present() {
		if p.say(line) {
			return
		}
	}
}

func (server *pmixServer) present() []*program {
	server.mu.Lock()
	defer server.mu.Unlock()
	return slices.Clone(server.ranks)
}

// bereave ends the ranks that have no server any more.
func (server *pmixServer) bereave() {
	ranks := server.present()
	if len(ranks) == 0 {
		return
	}
	said := make(chan struct{})
	go func() {
		defer close(said)
		server.say(fmt.Appendf(nil, "slurm-v: --mpi=pmix: the PMIx server of this VM has ended (%v), and the ranks that it served end with it\n", server.child.ProcessState))
	}()
	select {
	case <-said:
	case <-time.After(patience):
	}
	for _, p := range ranks {
		p.lost.Store(true)
		go p.kill()
	}
}

// lastWords returns at once while the server lives. When it has ended, its ranks notice and may end
// before the agent has said why; lastWords returns when it has been said.
func (server *pmixServer) lastWords() {
	if !server.gone() {
		return
	}
	select {
	case <-server.ended:
	case <-time.After(2 * patience):
	}
}

// gone reports whether the server has ended. A process closes its descriptors in order, so the
// agent's socket has ended before those of the ranks.
func (server *pmixServer) gone() bool {
	raw, err := server.control.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	_ = raw.Control(func(fd uintptr) {
		each := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(each, 0)
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Poll(each, 0)
		}
		gone = n > 0
	})
	return gone
}

// losePMI ends a program whose PMI the host has closed, if a PMIx server speaks it: the server waits
// in vain for what the other ranks put, and the program for the server.
func (p *program) losePMI() {
	if p.cmd.PMIx {
		p.lost.Store(true)
		p.kill()
	}
}

// farewell bounds how long a server may take to remove what it has made.
const farewell = 2 * time.Second

// end ends the server and returns when nothing of it is left.
func (server *pmixServer) end() error {
	_ = server.control.Close()
	select {
	case <-server.ended:
	case <-time.After(farewell):
		_ = server.child.Process.Kill()
	}
	if server.group == nil {
		<-server.ended
		return nil
	}
	server.group.kill()
	<-server.ended
	return server.group.remove()
}

// errNoServer is the error of a rank whose server has ended. The agent tells why.
var errNoServer = errors.New("the run's PMIx server has ended")

// awaitServer waits until the run's PMIx server serves this rank, whose program is at path. It
// returns the environment with what the program has to know of the server. A program that cannot
// run does not wait, and so keeps nobody else waiting.
func awaitServer(path string, env []string) ([]string, error) {
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS); err != nil {
		return env, err
	}
	_ = unix.Close(launchFD) // for the agent, the program runs
	text, err := io.ReadAll(descriptor(pmiFD))
	given, whole := strings.CutSuffix(string(text), "\x00\x00")
	if err != nil || !whole {
		return env, errNoServer
	}
	added := strings.Split(given, "\x00")
	return append(without(env, append(added, "PMI_RANK=", "PMI_SIZE=")), added...), nil
}

// without returns the environment without the variables that others sets.
func without(env, others []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return environ.Has(others, name)
	})
}
