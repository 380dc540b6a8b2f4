package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/vmstep"
)

type claimOptions struct {
	config string
	noWait bool
	wait   time.Duration
}

func newClaim() *cobra.Command {
	var o claimOptions
	cmd := &cobra.Command{
		Use:   "claim",
		Short: "Hold an IVShmem device of the job for a slurm-v-run",
		Long: `Hold an IVShmem device of the job for a slurm-v-run, on the job's first node.

slurm-v-run starts it through srun. It says on standard output when it has a device,
and holds the device until the end of standard input, which is the end of slurm-v-run.
No signal ends it, because signals to the job are for its programs.`,
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE:   func(*cobra.Command, []string) error { return runClaim(o) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.config, "config", config.Path, "read the configuration from this `file`")
	flags.BoolVar(&o.noWait, "no-wait", false, "do not wait for a device if all are claimed")
	flags.DurationVar(&o.wait, "wait", 5*time.Second, "wait this `long` for VMs that are still coming up")
	return cmd
}

// errRunEnded ends a claim because its run is over.
var errRunEnded = errors.New("slurm-v-run has ended")

func runClaim(o claimOptions) error {
	signal.Notify(make(chan os.Signal, 1)) // all: nobody reads them
	ctx, end := context.WithCancelCause(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end(errRunEnded)
	}()
	go func() {
		untilRefused(ctx, srunAddress(os.Getenv), srunInterval)
		end(errRunEnded)
	}()
	err := o.hold(ctx)
	switch {
	case errors.Is(err, errRunEnded):
		return nil
	case err != nil:
		return reply(vmstep.KindFailed, vmstep.Failure{Error: err.Error()})
	}
	return nil
}

// hold claims a device and holds it to the end.
func (o claimOptions) hold(ctx context.Context) error {
	client, err := dialPatiently(ctx, o.config, o.wait)
	if err != nil {
		return err
	}
	claimant, err := client.Claim(ctx, o.noWait)
	if err != nil {
		return err
	}
	defer claimant.Close()
	for {
		m, err := claimant.Next(ctx)
		if err != nil {
			return err
		}
		if err := reply(vmstep.KindClaim, m); err != nil || m.Busy {
			return err
		}
	}
}

// srunInterval is how often a claim looks for its srun.
const srunInterval = 10 * time.Second

// srunAddress is where the srun of this step listens for messages of Slurm.
func srunAddress(env func(string) string) string {
	host, port := env("SLURM_SRUN_COMM_HOST"), env("SLURM_SRUN_COMM_PORT")
	if host == "" || port == "" {
		return ""
	}
	return net.JoinHostPort(host, port)
}

// untilRefused returns when nobody listens at address any more, or ctx has ended.
//
// The end of srun is the end of standard input, unless all processes of srun are
// killed at once: Slurm then lets the step live on.
func untilRefused(ctx context.Context, address string, interval time.Duration) {
	if address == "" {
		<-ctx.Done()
	}
	dialer := net.Dialer{Timeout: interval}
	for ctx.Err() == nil {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if errors.Is(err, unix.ECONNREFUSED) {
			return
		}
		if err == nil {
			_ = conn.Close()
		}
		select {
		case <-ctx.Done():
		case <-time.After(interval):
		}
	}
}
