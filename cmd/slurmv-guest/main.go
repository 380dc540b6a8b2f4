// Command slurmv-guest is the agent inside a VM of Slurm-V. It needs nothing of the image
// but a Linux kernel. It finds the virtio-serial port that leads to the node, sets the VM
// up and runs programs as the node asks.
//
// The image's init starts it as root, and it runs until it is told to stop. It logs one
// line per event to the kernel's log, which the console shows.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os/signal"
	"syscall"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/guest/agent"
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
	log := slog.New(agent.KernelLog("/dev/kmsg"))
	agent.Serve(ctx, log, *device)
	log.Info("stopped")
}
