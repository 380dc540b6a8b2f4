package vmstep

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// squatVariable makes this test program one that holds addresses, and how: it listens,
// or has only bound them.
const squatVariable = "VMSTEP_TEST_SQUAT"

// nobody is another user than the one of the tests.
const nobody = 65534

// squat starts a process of another user that holds the addresses to the test's end.
func squat(t *testing.T, how string, addresses []string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("not root: run as root, to be another user as well")
	}
	cmd := exec.Command("/proc/self/exe") // others may not enter the directory of this program
	cmd.Env = append(os.Environ(), squatVariable+"="+how+" "+strings.Join(addresses, " "))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "holds them\n" {
		t.Fatalf("the squatter said %q, %v", line, err)
	}
}

// playSquatter holds the addresses until its standard input ends.
func playSquatter(words []string) int {
	for _, address := range words[1:] {
		if err := take(address, words[0] == "listens"); err != nil {
			os.Stdout.WriteString(err.Error() + "\n")
			return 1
		}
	}
	os.Stdout.WriteString("holds them\n")
	awaitEOF()
	return 0
}

// take binds an address for as long as this process lives.
func take(address string, listen bool) error {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrUnix{Name: address})
	}
	if err == nil && listen {
		err = syscall.Listen(fd, 64)
	}
	return err
}

// mustHold proves that somebody else has the address: it cannot be bound.
func mustHold(t *testing.T, address string) {
	t.Helper()
	if l, err := net.Listen("unix", address); !errors.Is(err, syscall.EADDRINUSE) {
		if err == nil {
			l.Close()
		}
		t.Fatalf("bind %s: %v; want it taken", address, err)
	}
}

func TestAddressesAreSecret(t *testing.T) {
	job := Job{ID: 7, Secret: "ABCD"}
	all := Addresses(1000, job)
	for what, others := range map[string][]string{
		"another job":     Addresses(1000, Job{ID: 8, Secret: "ABCD"}),
		"another restart": Addresses(1000, Job{ID: 7, Restart: 1, Secret: "ABCD"}),
		"another secret":  Addresses(1000, Job{ID: 7, Secret: "ABCE"}),
		"no secret":       Addresses(1000, Job{ID: 7}),
		"another user":    Addresses(1001, job),
	} {
		for _, address := range others {
			if slices.Contains(all, address) {
				t.Errorf("%s has the address %s, too", what, address)
			}
		}
	}
	if len(slices.Compact(slices.Sorted(slices.Values(all)))) != addressCount {
		t.Errorf("addresses = %q, want %d different ones", all, addressCount)
	}
	if !slices.Equal(all, Addresses(1000, Job{ID: 7, Nodes: 2, VMs: 4, Secret: "ABCD"})) {
		t.Error("the same job has other addresses")
	}
}

func TestHeldAddressesArePassedOver(t *testing.T) {
	for _, how := range []string{"listens", "binds"} {
		t.Run(how, func(t *testing.T) {
			s := newTestKeeper(t, "works")
			squat(t, how, s.addresses[:2])
			mustHold(t, s.addresses[0])
			for range 2 { // the one that starts the keeper, and one that finds it
				if _, err := s.connect(t, false).Wait(func(Event) {}); err != nil {
					t.Error(err)
				}
			}
			if s.starts.Load() != 1 {
				t.Errorf("%d keepers were started, want 1", s.starts.Load())
			}
			conn, err := reach(t.Context(), s.addresses[2])
			if err != nil {
				t.Fatalf("the keeper is not at the first free address: %v", err)
			}
			conn.Close()
		})
	}
}

func TestWhoHoldsAllAddressesIsNamed(t *testing.T) {
	for how, want := range map[string]string{
		"listens": "all 8 socket names of this job are taken, by the user nobody; tell the administrators of this site",
		"binds":   "all 8 socket names of this job are taken, by a process that answers nobody; tell the administrators of this site",
	} {
		t.Run(how, func(t *testing.T) {
			s := newTestKeeper(t, "works")
			squat(t, how, s.addresses)
			_, err := Connect(context.Background(), s.addresses, false, s.start)
			if err == nil || err.Error() != "start the keeper of the VMs: "+want {
				t.Errorf("error = %v, want %q", err, want)
			}
		})
	}
}

// A socket whose queue is full tells nothing of its owner. Nobody waits for it for good.
func TestAFullQueueIsPassedOver(t *testing.T) {
	s := newTestKeeper(t, "works")
	squat(t, "listens", s.addresses[:1])
	fillQueue(t, s.addresses[0])
	if _, err := s.connect(t, false).Wait(func(Event) {}); err != nil {
		t.Error(err)
	}
}

func fillQueue(t *testing.T, address string) {
	t.Helper()
	for range 100 {
		conn, err := net.Dial("unix", address)
		if errors.Is(err, syscall.EAGAIN) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Fatal("the queue takes any number of connections")
}

func TestManyClientsStartTheVMsOnceBesideASquatter(t *testing.T) {
	s := newTestKeeper(t, "works")
	squat(t, "listens", s.addresses[:3])
	startMany(t, s)
}

// Two keepers that find different addresses free do not both stay.
func TestKeepersAtDifferentAddresses(t *testing.T) {
	s := newTestKeeper(t, "works")
	squat(t, "listens", s.addresses[1:2]) // a keeper that finds the first address held comes to the third
	first, err := Listen(s.addresses[2:])
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if second, err := Listen(s.addresses); !errors.Is(err, ErrKept) {
		t.Errorf("a second keeper listens, %v, %v", second, err)
	}
	if l, err := net.Listen("unix", s.addresses[0]); err != nil {
		t.Errorf("the second has not let go of its address: %v", err)
	} else {
		l.Close()
	}
}

func TestOneKeeperOfManyListens(t *testing.T) {
	s := newTestKeeper(t, "works")
	var mu sync.Mutex
	var listeners []net.Listener
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			l, err := Listen(s.addresses)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			listeners = append(listeners, l)
			time.Sleep(time.Millisecond)
		})
	}
	group.Wait()
	if len(listeners) > 1 {
		t.Errorf("%d keepers listen", len(listeners))
	}
	for _, l := range listeners {
		l.Close()
	}
}
