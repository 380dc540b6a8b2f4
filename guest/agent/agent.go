// Package agent is the agent inside a VM. It does what a small init in the image has left
// undone, finds the virtio-serial port that leads to the node, and serves one host after
// the other. Package guest defines what the host may ask for, and package machine changes
// the VM.
package agent

import (
	"context"
	"errors"
	"log/slog"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/guest/machine"
)

// Serve serves one host after the other until ctx ends. device is the port to the node; ""
// means the virtio-serial port called [guest.PortName].
func Serve(ctx context.Context, log *slog.Logger, device string) {
	booted := uptime()
	prepare(log)
	server := &guest.Server{
		Machine: machine.New(log, booted),
		Cgroups: cgroups(log),
		Log:     log,
	}
	log.Info("waiting for the node", "version", config.Version, "boot_seconds", booted)
	for {
		port, err := openPort(ctx, log, device)
		if err != nil {
			return // ctx has ended
		}
		if err := server.Serve(ctx, port); !errors.Is(err, guest.ErrNoHost) {
			log.Info("the node has gone", "err", err)
		}
	}
}

// cgroups returns an empty directory for the programs' cgroups, or nil.
func cgroups(log *slog.Logger) *guest.Cgroups {
	groups, err := guest.OwnCgroups()
	if err != nil {
		log.Warn("programs are killed by process group only", "err", err)
		return nil
	}
	if err := groups.Clear(); err != nil {
		log.Error("programs of an earlier agent not removed", "err", err)
	}
	return groups
}

// uptime is the time since the kernel started, in seconds.
func uptime() float64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0
	}
	return float64(now.Nano()/1e6) / 1e3
}
