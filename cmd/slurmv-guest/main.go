// Command slurmv-guest is the agent inside a VM of Slurm-V. It needs nothing of
// the image but a Linux kernel: it finds the virtio-serial port that leads to
// the node, and sets the VM up and runs programs in it as the node asks.
//
// It is started as root by the image's init, whatever that is, and runs until
// it is told to stop. It logs one line per event to the kernel's log, which the
// console shows.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/guest/machine"
)

func main() {
	guest.RunProgram() // does not return in a process that becomes a program
	device := flag.String("port", "", "talk to the node over this `device` instead of the virtio-serial port "+guest.PortName)
	showVersion := flag.Bool("version", false, "print the version")
	flag.Parse()
	if *showVersion {
		fmt.Println("slurmv-guest", config.Version)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	log := slog.New(newKernelLog("/dev/kmsg"))
	serve(ctx, log, *device)
	log.Info("stopped")
}

// serve serves one host after the other until ctx ends.
func serve(ctx context.Context, log *slog.Logger, device string) {
	booted := uptime()
	prepare(log)
	server := &guest.Server{
		Machine: &machine.Machine{Log: log, BootSeconds: booted},
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
