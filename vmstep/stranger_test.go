package vmstep

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
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

// The name of a keeper's socket is anybody's to take. A stranger's is not believed, and
// hears nothing.
func TestStrangersAreNoKeepers(t *testing.T) {
	for name, tt := range users {
		t.Run(name, func(t *testing.T) {
			address := fmt.Sprintf("@slurmv-test/%d/keeper-%d", os.Getpid(), tt.uid)
			heard := make(chan int, 1)
			as(t, tt.uid, func() error {
				listener, err := net.Listen("unix", address)
				if err != nil {
					return err
				}
				t.Cleanup(func() { listener.Close() })
				go func() {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					defer conn.Close()
					n, _ := conn.Read(make([]byte, 100))
					heard <- n
					_ = json.NewEncoder(conn).Encode(Event{State: StateReady})
					_, _ = io.Copy(io.Discard, conn)
				}()
				return nil
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			c, err := Connect(ctx, address, false, func() error { return nil })
			if (err == nil) != tt.passes || err != nil && !strings.Contains(err.Error(), "belongs to user 65534") {
				t.Errorf("error = %v", err)
			}
			if got := <-heard > 0; got != tt.passes {
				t.Errorf("it is told something: %v", got)
			}
			if c != nil {
				c.Close()
			}
		})
	}
}

// Nor does a keeper tell a stranger anything.
func TestStrangersAreNoClients(t *testing.T) {
	s := newStage(t, "works")
	if _, err := s.connect(t, false).Wait(func(Event) {}); err != nil {
		t.Fatal(err)
	}
	for name, tt := range users {
		t.Run(name, func(t *testing.T) {
			var conn net.Conn
			as(t, tt.uid, func() (err error) {
				conn, err = net.Dial("unix", s.address)
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
