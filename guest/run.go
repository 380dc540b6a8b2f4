package guest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/environ"
)

// programName is the name of a process until it becomes the program.
const programName = "slurmv-program"

// RunProgram returns at once, except in a process that a [Server] made to run a program.
// There it enters the program's cgroup, becomes the program's user and executes the
// program. The child does all this itself, so nothing can leave the cgroup, and files are
// looked up with the user's rights.
func RunProgram() {
	if os.Args[0] != programName {
		return
	}
	runtime.LockOSThread() // this very thread becomes the program
	l, err := readStartup()
	if err == nil {
		err = l.enter()
	}
	if err != nil {
		complain("%v", err)
		os.Exit(1)
	}
	os.Exit(l.execute())
}

// complain writes a line to the program's stderr, as slurmstepd would.
func complain(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "slurmv: error: "+format+"\n", args...)
}

// readStartup reads the startup. It leaves the socket open: when exec closes it, the agent
// knows that the program runs.
func readStartup() (l startup, err error) {
	unix.CloseOnExec(launchFD)
	text, err := bufio.NewReader(descriptor(launchFD)).ReadBytes('\n')
	if err != nil {
		return l, fmt.Errorf("read what to run: %w", err)
	}
	return l, json.Unmarshal(text, &l)
}

// A descriptor reads from a file descriptor. It is no [os.File], because the garbage
// collector would close that.
type descriptor int

func (d descriptor) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(int(d), p)
		switch {
		case errors.Is(err, unix.EINTR):
		case n == 0 && err == nil:
			return 0, io.EOF
		default:
			return max(n, 0), err
		}
	}
}

// enter gives the process the program's cgroup, limits, umask and user.
func (l *startup) enter() error {
	if l.Procs != "" {
		if err := os.WriteFile(l.Procs, []byte("0"), 0); err != nil {
			return fmt.Errorf("enter the program's cgroup: %w", err)
		}
	}
	cmd := &l.Command
	_ = MakeOrdinary(unix.Gettid())
	for _, limit := range cmd.Limits {
		setLimit(limit)
	}
	unix.Umask(int(cmd.Umask & 0o777))
	if os.Geteuid() != 0 && uint32(os.Geteuid()) == cmd.UID {
		return nil // an agent without rights, in a test
	}
	groups := make([]int, len(cmd.Groups))
	for i, gid := range cmd.Groups {
		groups[i] = int(gid)
	}
	if err := syscall.Setgroups(groups); err != nil {
		return fmt.Errorf("set groups: %w", err)
	}
	if err := syscall.Setgid(int(cmd.GID)); err != nil {
		return fmt.Errorf("become group %d: %w", cmd.GID, err)
	}
	if err := syscall.Setuid(int(cmd.UID)); err != nil {
		return fmt.Errorf("become user %d: %w", cmd.UID, err)
	}
	return nil
}

// execute becomes the program. If that fails, it prints slurmstepd's words and returns
// slurmstepd's exit code, the number of the error.
func (l *startup) execute() int {
	cmd := &l.Command
	if err := os.Chdir(cmd.Dir); err != nil {
		complain("couldn't chdir to `%s': %s: going to /tmp instead", cmd.Dir, words(err))
		_ = os.Chdir("/tmp")
	}
	env := without(cmd.Env, []string{"PMI_FD="})
	speaksPMI := cmd.PMI && !cmd.PMIx
	if speaksPMI {
		env = append(append(env, "PMI_FD="+strconv.Itoa(pmiFD)), sharedMemoryEnv(env)...)
	}
	hideDescriptors(speaksPMI || l.Server)
	path, err := lookPath(cmd.Args[0], env)
	if err == nil && cmd.PMI {
		tellLibrary(path)
	}
	if err == nil && cmd.PMIx {
		env, err = awaitServer(path, env)
		env = keepPMI(env)
	}
	// exec resets caught signals to their default, but leaves ignored signals ignored.
	// Whatever started the agent may have ignored these two. Go catches all others anyway.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT)
	if err == nil {
		err = syscall.Exec(path, cmd.Args, env)
	}
	return l.excuse(path, err)
}

// excuse says why the program at path could not run.
func (l *startup) excuse(path string, err error) int {
	if errors.Is(err, errNoServer) {
		return 1
	}
	if interpreter, found := interpreterOf(path); found && errors.Is(err, unix.ENOENT) {
		complain("execve(): bad interpreter(%s): %s", interpreter, words(err))
	} else {
		complain("execve(): %s: %s", l.Command.Args[0], words(err))
	}
	if l.Server {
		complain("--mpi=pmix: the image may have another C library than glibc 2.34 or newer")
	}
	var number syscall.Errno
	if errors.As(err, &number) {
		return int(number)
	}
	return 1
}

// hideDescriptors makes exec close the descriptors that the agent inherited. Those that the
// agent opens itself are never passed on.
func hideDescriptors(pmi bool) {
	first := uint(launchFD)
	if pmi {
		first = pmiFD + 1
	}
	_ = unix.CloseRange(first, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) // Linux 5.11
}

// lookPath finds a program as execvp(3) does: a name without a slash is the first
// executable file of that name in PATH.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := "/usr/local/bin:/usr/bin:/bin"
	if environ.Has(env, "PATH") {
		path = environ.Value(env, "PATH")
	}
	err := error(unix.ENOENT)
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(".", dir, name)
		if filepath.IsAbs(dir) {
			file = filepath.Join(dir, name)
		}
		info, statErr := os.Stat(file)
		if statErr != nil || info.IsDir() {
			continue
		}
		if unix.Faccessat(unix.AT_FDCWD, file, unix.X_OK, unix.AT_EACCESS) == nil {
			return file, nil
		}
		err = unix.EACCES
	}
	return "", err
}

// interpreterOf returns the interpreter in a script's first line.
func interpreterOf(path string) (string, bool) {
	f, err := os.Open(path)
	if err != nil {
		return "", false
	}
	defer func() { _ = f.Close() }()
	start := make([]byte, 255)
	n, _ := f.Read(start)
	line, _, _ := bytes.Cut(start[:n], []byte("\n"))
	name, script := bytes.CutPrefix(line, []byte("#!"))
	return string(name), script && n >= 3
}

// words is strerror(3)'s text for err.
func words(err error) string {
	var number syscall.Errno
	if !errors.As(err, &number) {
		return err.Error()
	}
	text := number.Error()
	return strings.ToUpper(text[:1]) + text[1:]
}
