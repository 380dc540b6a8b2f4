package vmstep

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// as does something as a user, on a thread that ends with it. What the kernel tells of
// the other end of a socket is who has called listen or connect.
func as(t *testing.T, uid int, do func() error) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("becomes another user: run as root")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			done <- errno
			return
		}
		done <- do()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

var users = map[string]struct {
	uid    int
	passes bool
}{"the user": {0, true}, "a stranger": {65534, false}}

// A keeper tells a stranger nothing. (That a stranger's is no keeper: address_test.go.)
func TestStrangersAreNoClients(t *testing.T) {
	s := newTestKeeper(t, "works")
	if _, err := s.connect(t, false).Wait(func(Event) {}); err != nil {
		t.Fatal(err)
	}
	for name, tt := range users {
		t.Run(name, func(t *testing.T) {
			var conn net.Conn
			as(t, tt.uid, func() (err error) {
				conn, err = net.Dial("unix", s.addresses[0])
				return err
			})
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			_, _ = fmt.Fprintln(conn, "{}")
			if n, err := conn.Read(make([]byte, 100)); (n > 0) != tt.passes || os.IsTimeout(err) {
				t.Errorf("it is told %d bytes, %v", n, err)
			}
		})
	}
}
