// Package play lets tests play parts in other processes: as another user, without
// privileges, or with few open files. Such a process is the test's own program again,
// whose test TestPlay calls [Main].
package play

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/internal/process"
)

// The users who play the parts: a job's owner, and another user.
const (
	Owner    = 65533
	Stranger = 65534
)

// variable is the environment variable that names the part of a process.
const variable = "SLURMV_PLAY"

// Main plays the part for which this process was started. In the tests' own process it
// skips the test.
func Main(t *testing.T, parts map[string]func(t *testing.T, rest string)) {
	name, rest, _ := strings.Cut(os.Getenv(variable), " ")
	if name == "" {
		t.Skip("it is played by other tests")
	}
	parts[name](t, rest)
}

// A Player is a process that plays a part. It lives until its standard input ends.
type Player struct {
	*exec.Cmd
	In  io.WriteCloser
	out *bufio.Reader
}

// Start starts a process that plays a part. part is its name, a space, and its argument. The command line ends with words.
func Start(t *testing.T, part string, as *syscall.SysProcAttr, words ...string) *Player {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("run as root: it takes processes of several users")
	}
	c := exec.Command("/proc/self/exe", append([]string{"-test.run=^TestPlay$", "-test.v", "--"}, words...)...)
	c.Dir, c.Env, c.SysProcAttr, c.Stderr = "/", append(os.Environ(), variable+"="+part), as, os.Stderr
	in, inErr := c.StdinPipe()
	out, outErr := c.StdoutPipe()
	if err := errors.Join(inErr, outErr, c.Start()); err != nil {
		t.Fatal(err)
	}
	p := &Player{Cmd: c, In: in, out: bufio.NewReader(out)}
	t.Cleanup(func() {
		_ = in.Close()
		_ = c.Wait() // it ends by itself, together with the processes that it has started
	})
	return p
}

// As returns the attributes of a process of user uid.
func As(uid uint32) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
}

// Says returns the rest of the next line that begins with word, or "" at the end.
func (p *Player) Says(word string) string {
	for {
		line, err := p.out.ReadString('\n')
		if rest, found := strings.CutPrefix(line, word+": "); found {
			return strings.TrimSpace(rest)
		}
		if err != nil {
			return ""
		}
	}
}

// OpenDir makes a directory that all users may pass.
func OpenDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "slurmv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// held are connections that the garbage collector must not close.
var held []net.Conn

// settled is how long a connection has to stay open to count as kept.
const settled = 2 * time.Second

// Hold opens silent connections to a socket, and returns how many stay open.
func Hold(socket string, count int) string {
	for range count {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			return err.Error()
		}
		held = append(held, conn)
	}
	var kept atomic.Int32
	var all sync.WaitGroup
	until := time.Now().Add(settled)
	for _, conn := range held {
		all.Go(func() {
			_ = conn.SetReadDeadline(until)
			if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
				kept.Add(1)
			}
		})
	}
	all.Wait()
	return fmt.Sprintf("%d kept", kept.Load())
}

// Privileges returns the privileges of the threads whose status files match pattern. They
// must all be the same.
func Privileges(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) < 2 {
		t.Fatalf("%d threads, %v", len(files), err)
	}
	var same string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue // it has ended
		}
		got := PrivilegesIn(string(text))
		if same != "" && got != same {
			return "threads differ: " + same + " and " + got
		}
		same = got
	}
	return same
}

// PrivilegesIn returns the privileges in the text of /proc/PID/status.
func PrivilegesIn(status string) string {
	has, all := process.ParseStatus(status), []string{}
	for _, name := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs"} {
		all = append(all, name, strings.Join(has[name], " "))
	}
	return strings.Join(all, " ")
}

// HasEnded reports whether a child is a zombie. It waits a moment for it to become one.
func HasEnded(t *testing.T, pid int) bool {
	t.Helper()
	for range 20 {
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		if err != nil {
			t.Fatal(err)
		}
		if _, rest, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(rest, "Z") {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}
