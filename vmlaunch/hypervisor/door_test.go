//go:build !noguests

package hypervisor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/internal/play"
	"github.com/slurm-v/slurm-v/internal/process"
)

// openDoor opens a socket to which all users can connect, and a domain whose pid file is missing.
func openDoor(t *testing.T) (*net.UnixListener, *Domain) {
	t.Helper()
	dir := play.OpenDir(t)
	door, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "door"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = door.Close() })
	if err := os.Chmod(door.Addr().String(), 0o666); err != nil {
		t.Fatal(err)
	}
	return door, &Domain{name: "instance-00000007", uuid: someUUID, pids: dir}
}

// Whoever connects to the guest agent's socket before QEMU does is turned away, also while QEMU is told to connect, and
// also with QEMU's command line, which everybody can read. Then QEMU gets in.
func TestOnlyQEMUGetsTheGuestAgentsPort(t *testing.T) {
	door, d := openDoor(t)
	knocker := func(uid uint32, uuid string) *play.Player {
		return play.Start(t, "knock "+door.Addr().String(), play.As(uid), "-uuid", uuid, "-S")
	}
	stranger, namesake, qemu := knocker(play.Stranger, "99999999"), knocker(play.Stranger, someUUID), knocker(play.Owner, someUUID)
	pid := strconv.Itoa(qemu.Process.Pid)
	if err := os.WriteFile(filepath.Join(d.pids, d.name+".pid"), []byte(pid+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	plug := func() error {
		for who, p := range map[string]*play.Player{"a stranger": stranger, "one with QEMU's command line": namesake} {
			_, _ = fmt.Fprintln(p.In, "go")
			if said := p.Says("knock"); said != "0 kept" {
				t.Errorf("%s: %s", who, said)
			}
		}
		_, err := fmt.Fprintln(qemu.In, "go")
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := d.Admit(ctx, door, plug)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if peer, err := process.Peer(conn.(*net.UnixConn)); err != nil || int(peer.Pid) != qemu.Process.Pid {
		t.Errorf("process %+v got in instead of %s, %v", peer, pid, err)
	}
	if said := qemu.Says("knock"); said != "1 kept" {
		t.Errorf("QEMU: %s", said)
	}
}

// Nobody waits for a QEMU that nobody can know, or that does not get the port.
func TestNoQEMUComes(t *testing.T) {
	refused := errors.New("the machine has no such controller")
	for name, tt := range map[string]struct {
		pid  string // of libvirt's file; "" is no file
		plug error
		want error
	}{
		"libvirt's pid files are elsewhere": {want: fs.ErrNotExist},
		"libvirt refuses the port":          {pid: "1", plug: refused, want: refused},
		"QEMU does not connect":             {pid: "1", want: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			door, d := openDoor(t)
			if tt.pid != "" {
				if err := os.WriteFile(filepath.Join(d.pids, d.name+".pid"), []byte(tt.pid), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := d.Admit(ctx, door, func() error { return tt.plug }); !errors.Is(err, tt.want) {
				t.Error(err)
			}
		})
	}
}

// A QEMU that has ended leaves its pid file, and its number may be another process's.
func TestTheNumberOfAQEMUThatHasEnded(t *testing.T) {
	_, d := openDoor(t)
	const another = "99999999-2222-8333-8444-555555555555"
	pid := standIn(t, another).Process.Pid
	awaitEmulator(t, another)
	if err := os.WriteFile(filepath.Join(d.pids, d.name+".pid"), []byte(strconv.Itoa(pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	for uuid, want := range map[string]bool{someUUID: false, another: true} {
		if d.uuid = uuid; d.IsProcess(pid) != want {
			t.Errorf("the process of domain %s is that of %s: %v", another, uuid, !want)
		}
	}
}

func playKnock(_ *testing.T, socket string) {
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	fmt.Println("knock:", play.Hold(socket, 1))
}

// TestPlay is a process of [play.Start].
func TestPlay(t *testing.T) {
	play.Main(t, map[string]func(*testing.T, string){"knock": playKnock})
}
