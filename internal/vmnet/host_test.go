package vmnet

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// looseReversePath accepts packets whose answers would leave through another link, so
// that only our filter can stop them. It affects only the calling thread's node.
func looseReversePath() error {
	for _, link := range []string{"all", "default", bridgeName(job1.Job)} {
		if err := os.WriteFile("/proc/thread-self/root/proc/sys/net/ipv4/conf/"+link+"/rp_filter", []byte("0"), 0); err != nil {
			return err
		}
	}
	return nil
}

// withoutFilters removes the filters that keep frames of the job's VMs off the node.
func withoutFilters() error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	conn.DelTable(&nftables.Table{Family: nftables.TableFamilyBridge, Name: table(job1)})
	return conn.Flush()
}

// delivered returns how many packets the node's IP layer has received.
func delivered(t *testing.T, n *node) (count uint64) {
	t.Helper()
	n.do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			var forwarding, ttl int
			if k, _ := fmt.Sscanf(line, "Ip: %d %d %d", &forwarding, &ttl, &count); k == 3 {
				return nil
			}
		}
		return errors.New("no counters in /proc/net/snmp")
	})
	return count
}

// sendAs sends one UDP packet from a socket of user uid, on the calling thread.
func sendAs(uid int, from, to string, data []byte) error {
	// The system call changes only this thread, which ends with its task.
	if _, _, err := unix.RawSyscall(unix.SYS_SETFSUID, uintptr(uid), 0, 0); err != 0 {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	local, remote := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: local.Addr().As4(), Port: int(local.Port())}); err != nil {
		return err
	}
	return unix.Sendto(fd, data, 0, &unix.SockaddrInet4{Addr: remote.Addr().As4(), Port: int(remote.Port())})
}
