//go:build noguests

// A build with the tag noguests measures what Slurm-V itself costs, on a machine that
// could not run so many guests; see scripts/bench-scale. libvirt's test driver keeps
// books of domains and starts nothing, and the agent that answers at the end of a
// channel serves a machine that is none. All else is what every build has.

package vmlaunch

import (
	"context"
	"io/fs"
	"net"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/guest"
)

func driver(string) string { return "test:///default" }

func dialPort(socket string) (net.Conn, error) {
	host, inside := net.Pipe()
	if strings.HasSuffix(socket, ".channel") {
		server := &guest.Server{Machine: noMachine{}}
		go func() { _ = server.Serve(context.Background(), inside) }()
	}
	return host, nil
}

// checkOwner has no process to look at.
func (n *Node) checkOwner(*machine) error { return nil }

// emulator finds none.
func (n *Node) emulator(*machine) (string, error) { return "", fs.ErrNotExist }

// noMachine is at once what it is told to be.
type noMachine struct{}

func (noMachine) Setup(context.Context, guest.Setup) (guest.Report, error) {
	return guest.Report{OS: "none"}, nil
}

func (noMachine) SetHosts(context.Context, []guest.Host) error { return nil }

func (noMachine) StartSSH(context.Context, guest.SSH) error { return nil }

func (noMachine) Template(context.Context) error { return nil }

func (noMachine) Clock(time.Duration) (time.Time, time.Duration, error) {
	return time.Now(), time.Since(started), nil
}

func (noMachine) ClockSource(string) (guest.ClockSource, error) {
	return guest.ClockSource{Current: "none"}, nil
}

// started is when all of these machines were started.
var started = time.Now()
