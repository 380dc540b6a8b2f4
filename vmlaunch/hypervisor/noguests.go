//go:build noguests

// A build with the tag noguests measures what Slurm-V itself costs, on a machine that
// could not run so many guests; see bench/scale. libvirt's test driver keeps
// books of domains and starts nothing, and the agent that answers at the end of a
// channel serves a machine that is none. All else is what every build has.

package hypervisor

import (
	"context"
	"io/fs"
	"net"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/owner"
)

func uri(string) string { return "test:///default" }

// Dial connects to the guest agent, at the end of a channel, and else to nobody.
func Dial(socket string) (net.Conn, error) {
	host, inside := net.Pipe()
	if strings.HasSuffix(socket, ".channel") {
		server := &guest.Server{Machine: noMachine{}}
		go func() { _ = server.Serve(context.Background(), inside) }()
	}
	return host, nil
}

// CheckConfined has no process to look at.
func (d *Domain) CheckConfined(owner.Owner) error { return nil }

// Process finds none.
func (d *Domain) Process() (string, error) { return "", fs.ErrNotExist }

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
