package hostdir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/guest/machine"
	"github.com/slurm-v/slurm-v/internal/filetest"
	"github.com/slurm-v/slurm-v/internal/owner"
)

var alice = owner.Owner{Name: "alice", UID: 65533, GID: 65533, Groups: []owner.Group{{Name: "alice", GID: 65533}}}

// A vm is this machine's kernel in the part of a guest's: the whole way of a request, without
// QEMU.
type vm struct {
	*testing.T
	host, guest string // the directory on the node, and where the guest sees it
	end         func() // of the channel to the VM
}

// aliceDir is a directory of alice's.
func aliceDir(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounts a file system and becomes another user: run as root")
	}
	dir := filepath.Join(filetest.PassableDir(t), "home")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, int(alice.UID), int(alice.GID))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// startVM shows a directory of alice's in a VM.
func startVM(t *testing.T, server *Server, host string) vm {
	t.Helper()
	at := filepath.Join(t.TempDir(), "mnt")
	near, far := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	inside := &guest.Server{Machine: machine.New(slog.New(slog.DiscardHandler), 0)}
	go func() { served <- inside.Serve(ctx, far) }()
	session, err := guest.Connect(ctx, near)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := session.Mount(ctx, guest.Mount{Path: at})
	if errors.Is(err, guest.ErrNoFUSE) {
		t.Skip("this machine has no FUSE")
	}
	if err != nil {
		t.Fatal(err)
	}
	conn, err := server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = stream.Serve(conn) }()
	end := sync.OnceFunc(func() {
		_ = session.Close()
		cancel()
		<-served
	})
	t.Cleanup(func() {
		end()
		_ = unix.Unmount(at, unix.MNT_DETACH) // if the test has found that it stays
	})
	return vm{t, host, at, end}
}

func startServer(t *testing.T, d Directory) *Server {
	t.Helper()
	server, err := Start(t.Context(), alice, d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server
}

func newVM(t *testing.T) vm {
	host := aliceDir(t)
	return startVM(t, startServer(t, Directory{Path: host}), host)
}

// sh runs a script in the guest's directory, as root of the VM. This process does not enter
// the directory itself, nor open a file there: it serves it, and some of Go's system calls
// stop the whole process until they return.
func (v vm) sh(script string) string {
	v.Helper()
	return v.anywhere("cd " + v.guest + "\n" + script)
}

func (v vm) anywhere(script string) string {
	v.Helper()
	ctx, cancel := context.WithTimeout(v.Context(), 20*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, "/bin/sh", "-ec", script)
	out, err := c.CombinedOutput()
	if err != nil {
		v.Errorf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

func (v vm) want(what, got, want string) {
	v.Helper()
	if got != want {
		v.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestFilesOfTheNodeAreFilesOfTheVM(t *testing.T) {
	v := newVM(t)
	filetest.Write(t, filepath.Join(v.host, "from-node"), "hello\n")
	v.want("a file of the node", v.sh("cat from-node"), "hello\n")
	v.sh(`echo data >a; mkdir d; mv a d/b; ln d/b c; ln -s d/b l; chmod 640 c; mkfifo f; touch -d 2001-02-03 c; umask 077; : >private
		dd if=/dev/zero of=large bs=1M count=8 status=none; truncate -s 5000000 large`)
	v.want("what the VM wrote", v.sh("cd "+v.host+"; cat d/b; cat l; readlink l; stat -c '%a %h %U %y' c | cut -c1-24; stat -c %s large; stat -c %a private d; test -p f; stat -c %u private"),
		"data\ndata\nd/b\n640 2 UNKNOWN 2001-02-03\n5000000\n600\n755\n65533\n")
	v.sh("rm -r d c l f large private from-node")
	v.want("what is left", v.sh("ls -A "+v.host), "")
}

// Nothing is cached that somebody else may change.
func TestAChangeIsSeenAtOnce(t *testing.T) {
	v := newVM(t)
	file := filepath.Join(v.host, "f")
	for i := range 20 {
		text := strings.Repeat("x", i%3) + strconv.Itoa(i) + "\n"
		filetest.Write(t, file, text)
		v.want("the file", v.sh("cat f; ls -A"), text+"f\n")
		filetest.Write(t, filepath.Join(v.host, "new"), "")
		v.want("a file that is new", v.sh("test -e new; ls -A"), "f\nnew\n")
		if err := os.Remove(filepath.Join(v.host, "new")); err != nil {
			t.Error(err)
		}
	}
}

// The server has the rights of the job's owner, whoever asks in the VM.
func TestTheServerIsTheOwner(t *testing.T) {
	v := newVM(t)
	for name, group := range map[string]int{"roots": 0, "groups": int(alice.GID)} {
		filetest.Write(t, filepath.Join(v.host, name), "secret\n")
		if err := errors.Join(os.Chown(filepath.Join(v.host, name), 0, group), os.Chmod(filepath.Join(v.host, name), 0o640)); err != nil {
			t.Fatal(err)
		}
	}
	filetest.Write(t, filepath.Join(v.host, "everybodys"), "open\n")
	v.want("a file that everybody may read", v.sh("cat everybodys"), "open\n")
	v.want("a file of the owner's group", v.sh("cat groups"), "secret\n")
	contains(t, v.sh("cat roots 2>&1 || true; chown 65533 everybodys 2>&1 || true"), "roots: Permission denied", "'everybodys': Operation not permitted")
}

// A guest whose kernel lies could look for names below a symbolic link. It finds what is
// inside of the directory, and nothing else.
func TestTheDirectoryIsTheServersRoot(t *testing.T) {
	host := aliceDir(t)
	outside := filetest.PassableDir(t)
	filetest.Write(t, filepath.Join(outside, "f"), "outside\n")
	if err := os.Symlink(outside, filepath.Join(host, "link")); err != nil {
		t.Fatal(err)
	}
	server := startServer(t, Directory{Path: host})
	root, err := os.Readlink(fmt.Sprintf("/proc/%d/root", ownersProcess(t, server)))
	if err != nil || root != host {
		t.Errorf("the server's root directory is %s (%v), want %s", root, err, host)
	}
	v := startVM(t, server, host)
	v.want("the link itself", v.sh("cat link/f"), "outside\n") // the guest's kernel follows it in the guest
}

// ownersProcess returns the server's process, which is the owner's as soon as Start returns.
func ownersProcess(t *testing.T, s *Server) int {
	t.Helper()
	pid := s.process.Process.Pid
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	contains(t, string(status), fmt.Sprintf("Uid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", alice.UID), "CapEff:\t0000000000000000\n")
	return pid
}

func TestADirectoryThatCannotBeServed(t *testing.T) {
	host := aliceDir(t)
	filetest.Write(t, filepath.Join(host, "file"), "")
	for path, want := range map[string]error{
		filepath.Join(host, "file"): owner.ErrNotDirectory, filepath.Join(host, "none"): os.ErrNotExist,
		"/root/.none": os.ErrPermission, "/proc/self/cwd": owner.ErrKernelFile, "/proc/1": owner.ErrKernelFile,
	} {
		if s, err := Start(t.Context(), alice, Directory{Path: path}); !errors.Is(err, want) {
			t.Errorf("%s: error = %v, want %v", path, err, want)
			if err == nil {
				_ = s.Close()
			}
		}
	}
}

func TestADirectoryThatIsReadOnly(t *testing.T) {
	host := aliceDir(t)
	filetest.Write(t, filepath.Join(host, "f"), "text\n")
	if err := os.Chmod(filepath.Join(host, "f"), 0o666); err != nil {
		t.Fatal(err)
	}
	server := startServer(t, Directory{Path: host, ReadOnly: true})
	// The guest's kernel is asked to mount it for writing: it is the server that refuses.
	v := startVM(t, server, host)
	v.want("reading", v.sh("cat f; ls -A; readlink -f f | grep -c /f; stat -c %s f"), "text\nf\n1\n5\n")
	for _, change := range []string{"echo x >f", "echo x >>f", "touch new", "mkdir d", "rm -f f", "mv f g", "chmod 600 f", "truncate -s 0 f", "ln f g", "ln -s f g", "mkfifo g", "touch f", "chown 65533 f"} {
		v.sh("! { " + change + "; } 2>/dev/null")
	}
	v.want("the file on the node", v.sh("cat "+host+"/f; stat -c %a "+host+"/f; ls -A "+host), "text\n666\nf\n")
}

// Locks hold between VMs, and a program that waits for one can be killed.
func TestLocks(t *testing.T) {
	host := aliceDir(t)
	server := startServer(t, Directory{Path: host})
	one, two := startVM(t, server, host), startVM(t, server, host)
	one.sh(": >lock")
	for _, how := range []string{"flock -x", "flock -s"} {
		holder := exec.Command("/bin/sh", "-c", "cd "+one.guest+"; "+how+" lock sh -c 'echo held; cat'")
		in, err1 := holder.StdinPipe()
		out, err2 := holder.StdoutPipe()
		if err := errors.Join(err1, err2, holder.Start()); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, len("held\n"))); err != nil {
			t.Fatal(err)
		}
		got := two.sh("flock -xn lock echo taken || echo refused")
		two.want("another's try", got, "refused\n")
		waiter := exec.Command("flock", "-x", filepath.Join(two.guest, "lock"), "true")
		if err := waiter.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond) // so that it waits, most probably
		_ = waiter.Process.Kill()
		_ = waiter.Wait() // returns
		_ = in.Close()
		_ = holder.Wait()
		// The kernel tells the server of the end of a process's files when the process has ended.
		two.want("after the holder's end", two.sh("until flock -xn lock echo taken; do sleep 0.01; done"), "taken\n")
	}
}

// When the channel ends, the directory is gone from the VM; when the server ends, programs
// get errors and do not hang.
func TestEnds(t *testing.T) {
	v := newVM(t)
	v.sh("echo x >f")
	v.end()
	if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(mounts), v.guest) {
		t.Errorf("the directory is still mounted after the channel's end (%v)", err)
	}
	host := aliceDir(t)
	server := startServer(t, Directory{Path: host})
	w := startVM(t, server, host)
	w.sh("echo x >f")
	_ = server.process.Process.Kill()
	w.anywhere("while test -e " + w.guest + "/f; do sleep 0.01; done")
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
}
