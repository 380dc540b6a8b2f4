//go:build noguests

// A build with the tag noguests measures the costs of Slurm-V itself, on a machine that
// could not run so many guests; see bench/scale. libvirt's test driver keeps lists of
// domains and starts nothing. The guest agent at the end of a channel is real, but its
// machine is a stub that does nothing. Everything else is as in every build.

package hypervisor

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/owner"
)

func uri(string) string { return "test:///default" }

// Dial connects to a guest agent in this process if the socket is a channel, and else to
// nobody.
func Dial(socket string) (net.Conn, error) {
	host, inside := net.Pipe()
	if strings.HasSuffix(socket, ".channel") {
		server := &guest.Server{Machine: noMachine{}}
		go func() { _ = server.Serve(context.Background(), inside) }()
	}
	return host, nil
}

// CheckConfined does nothing: there is no QEMU process.
func (d *Domain) CheckConfined(owner.Owner) error { return nil }

// Process always returns fs.ErrNotExist: there is no QEMU process.
func (d *Domain) Process() (string, error) { return "", fs.ErrNotExist }

// noMachine reports at once that it is set up.
type noMachine struct{}

func (noMachine) Setup(context.Context, guest.Setup) (guest.Report, error) {
	return guest.Report{OS: "none"}, nil
}

func (noMachine) Mount(context.Context, guest.Mount) (io.ReadWriteCloser, error) {
	return nil, guest.ErrNoFUSE
}

func (noMachine) Egress(context.Context) (io.ReadWriteCloser, error) {
	return nil, errors.New("no guest has a way out")
}

func (noMachine) SetHosts(context.Context, []guest.Host) error { return nil }

func (noMachine) StartSSH(context.Context, guest.SSH) error { return nil }

func (noMachine) Template(context.Context) error { return nil }

func (noMachine) ExpectNVDIMMs(context.Context) error { return nil }

func (noMachine) Clock(time.Duration) (time.Time, time.Duration, error) {
	return time.Now(), time.Since(started), nil
}

func (noMachine) ClockSource(string) (guest.ClockSource, error) {
	return guest.ClockSource{Current: "none"}, nil
}

// started is the start of all noMachines.
var started = time.Now()
