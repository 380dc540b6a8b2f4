package workload

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"
)

// maxAddresses bounds what a rank publishes: PMI-1 has short values.
const maxAddresses = 5

// A listener is where other ranks can reach this one.
type listener struct {
	tcp   net.Listener
	token string // the ranks of this step know it
}

// listen publishes the addresses of this rank, the best first.
func (r *Rank) listen(first []string) (*listener, error) {
	tcp, err := net.Listen("tcp4", ":0")
	if err != nil {
		return nil, err
	}
	l := &listener{tcp: tcp, token: rand.Text()}
	hosts := append(resolved(first), ownAddresses()...)
	if len(hosts) == 0 {
		return nil, errors.New("this host has no IPv4 address but the loopback's")
	}
	port := tcp.Addr().(*net.TCPAddr).Port
	value := fmt.Sprintf("%s,%d,%s", l.token, port, strings.Join(texts(hosts[:min(len(hosts), maxAddresses)]), ","))
	return l, r.Put(key(r.Number), value)
}

func key(rank int) string { return fmt.Sprintf("address-%d", rank) }

func texts(addresses []netip.Addr) (all []string) {
	for _, a := range addresses {
		all = append(all, a.String())
	}
	return all
}

// resolved returns the IPv4 addresses of hosts that are known here, without the loopback.
func resolved(hosts []string) (all []netip.Addr) {
	for _, host := range hosts {
		found, err := net.DefaultResolver.LookupNetIP(context.Background(), "ip4", host)
		for _, a := range found {
			if err == nil && !a.Unmap().IsLoopback() {
				all = append(all, a.Unmap())
			}
		}
	}
	return all
}

// ownAddresses returns the IPv4 addresses of the interfaces that are up.
func ownAddresses() (all []netip.Addr) {
	found, _ := net.InterfaceAddrs()
	for _, a := range found {
		prefix, err := netip.ParsePrefix(a.String())
		if err == nil && prefix.Addr().Is4() && prefix.Addr().IsGlobalUnicast() {
			all = append(all, prefix.Addr())
		}
	}
	return all
}

// patience bounds each wait for another rank. VMs may be emulated, many on a CPU.
const patience = time.Minute

// accept waits for a rank that knows the token.
func (l *listener) accept() (net.Conn, error) {
	for end := time.Now().Add(patience); ; {
		if err := l.tcp.(*net.TCPListener).SetDeadline(end); err != nil {
			return nil, err
		}
		conn, err := l.tcp.Accept()
		if err != nil {
			return nil, fmt.Errorf("wait for a connection of another rank: %w", err)
		}
		token := make([]byte, len(l.token))
		_ = conn.SetDeadline(end)
		if _, err := io.ReadFull(conn, token); err == nil && string(token) == l.token {
			return conn, conn.SetDeadline(time.Now().Add(2 * patience))
		}
		conn.Close()
	}
}

// dial connects to a rank by the first of its addresses that answers.
func (r *Rank) dial(rank int) (net.Conn, error) {
	value, err := r.Get(key(rank))
	if err != nil {
		return nil, err
	}
	parts := strings.Split(value, ",")
	if len(parts) < 3 {
		return nil, fmt.Errorf("rank %d has published %q, which is no address", rank, value)
	}
	var failed error
	for _, host := range parts[2:] {
		conn, err := net.DialTimeout("tcp4", net.JoinHostPort(host, parts[1]), patience/maxAddresses)
		if err == nil {
			_, err = io.WriteString(conn, parts[0])
		}
		if err == nil {
			return conn, conn.SetDeadline(time.Now().Add(2 * patience))
		}
		failed = errors.Join(failed, err)
	}
	return nil, fmt.Errorf("connect to rank %d: %w", rank, failed)
}

// names returns the names by which other ranks of the step reach this one: a VM's own name,
// or that of the node in Slurm.
func names(env func(string) string) []string {
	for _, name := range []string{"SLURMV_VM", "SLURMD_NODENAME"} {
		if env(name) != "" {
			return []string{env(name)}
		}
	}
	host, _ := os.Hostname()
	return []string{host}
}
