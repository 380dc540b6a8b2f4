// Package agent is the agent inside a VM: it makes up for what the image's init has not
// done, finds the virtio-serial port that leads to the node, and serves one host after the
// other. What the host may ask for is package guest's, and what is done to the VM package
// machine's.
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

// Serve serves one host after the other until ctx ends. device is the port to the node, or
// "" for the virtio-serial port of that name.
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
			return // stopped
		}
		if err := server.Serve(ctx, port); !errors.Is(err, guest.ErrNoHost) {
			log.Info("the node has gone", "err", err)
		}
	}
}

// cgroups returns the place for programs' cgroups, empty, or nil.
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
