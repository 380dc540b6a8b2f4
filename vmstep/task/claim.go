package task

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmstep"
)

// A Claimant is the task that holds an IVShmem device of the job for a slurm-v-run.
type Claimant struct {
	Agent
	NoWait bool // fail if all devices are claimed
}

// errRunEnded ends a claim because its run is over.
var errRunEnded = errors.New("slurm-v-run has ended")

// Run writes to standard output when the run has a device, and holds the device until the
// end of standard input, which is the end of slurm-v-run. Signals do not end it: signals to
// the whole job are meant for its programs.
func (c Claimant) Run() error {
	signal.Notify(make(chan os.Signal, 1)) // catches all signals and ignores them
	ctx, end := context.WithCancelCause(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end(errRunEnded)
	}()
	go func() {
		untilRefused(ctx, slurm.SrunAddress(os.Getenv), srunInterval)
		end(errRunEnded)
	}()
	err := c.hold(ctx)
	switch {
	case errors.Is(err, errRunEnded):
		return nil
	case err != nil:
		return reply(vmstep.KindFailed, vmstep.Failure{Error: err.Error()})
	}
	return nil
}

// hold claims a device and holds it to the end.
func (c Claimant) hold(ctx context.Context) error {
	client, err := c.await(ctx)
	if err != nil {
		return err
	}
	claimant, err := client.Claim(ctx, c.NoWait)
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

// srunInterval is how often a claim checks whether its srun still lives.
const srunInterval = 10 * time.Second

// untilRefused returns when nobody listens at address any more, or ctx has ended.
//
// The end of srun usually ends standard input too. But if all processes of srun are killed
// at once, Slurm lets the step live on, and only the address shows it.
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
