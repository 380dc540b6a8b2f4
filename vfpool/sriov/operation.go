package sriov

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/vfpool/device"
)

// An operation is one call of State, Apply, Attach or Restore for one VF.
type operation struct {
	*Cards
	name  string
	vf    device.VF
	pf    device.PF // without its VFs
	until time.Time // EBUSY and EAGAIN are tried again until then
	taken uint32    // owner from whom /dev/vfio/GROUP was taken; 0 if from nobody
}

// An action may be repeated. Crash tests end the process before each action.
type action struct {
	name string
	do   func(context.Context) error
}

func (c *Cards) begin(name string, vf device.VF) (*operation, error) {
	o := &operation{Cards: c, name: name, vf: vf, pf: device.PF{Name: vf.PF}}
	o.wait()
	if o.gone() {
		return nil, o.fail("device", vf.PCI, ErrGone, "")
	}
	physfn := c.sys.target(c.sys.device(vf.PCI), "physfn")
	if at := c.sys.target(c.sys.device(physfn), fmt.Sprintf("virtfn%d", vf.Index)); at != vf.PCI {
		return nil, o.fail("device", vf.PCI, fmt.Errorf("VF %d of %s is %q", vf.Index, physfn, at), "list the VFs again: they were made anew")
	}
	// The interface may have been renamed since the VF was listed.
	o.pf = c.function(physfn)
	if o.pf.Name == physfn && o.pf.Caps != (device.Caps{}) {
		return nil, o.fail("device", vf.PCI, fs.ErrNotExist, o.pf.Unusable.String())
	}
	return o, nil
}

// wait gives a busy card the whole Patience again.
func (o *operation) wait() { o.until = time.Now().Add(o.Patience) }

func (o *operation) run(ctx context.Context, steps ...action) error {
	for _, s := range steps {
		if err := o.one(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (o *operation) runAll(ctx context.Context, steps ...action) error {
	var errs []error
	for _, s := range steps {
		errs = append(errs, o.one(ctx, s))
	}
	return errors.Join(errs...)
}

func (o *operation) one(ctx context.Context, s action) error {
	if err := ctx.Err(); err != nil {
		return o.fail(s.name, "", err, "it is not done; restore the VF")
	}
	o.Before(o.name + " " + s.name)
	return s.do(ctx)
}

// errNotYet is the error for a state that should change by itself.
var errNotYet = errors.New("not yet")

func busy(err error) bool {
	return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EBUSY) || errors.Is(err, errNotYet)
}

// fewest is how often a busy card is asked at least. On a machine that is slow or was
// suspended, the time may be over after a single try.
const fewest = 5

// retry calls f until the card is no longer busy or the time is over.
func (o *operation) retry(ctx context.Context, f func() error) error {
	pause := o.Patience / 1000
	for tries := 1; ; tries++ {
		err := f()
		if !busy(err) || o.gone() || tries >= fewest && time.Now().After(o.until) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(pause):
		}
		pause = min(2*pause, o.Patience/20)
	}
}

// slow bounds a write to sysfs: if the reset of a function hangs, the kernel blocks the
// writer for a minute.
const slow = 10 * time.Second

var errSlow = fmt.Errorf("the kernel did not finish it in %v", slow)

// write writes value to a file of sysfs. Errors name the file by attribute.
func (o *operation) write(ctx context.Context, attribute, path, value string) error {
	err := o.retry(ctx, func() error {
		done := make(chan error, 1)
		go func() { done <- o.Kernel.Write(path, value) }()
		select {
		case err := <-done:
			return err
		case <-time.After(slow):
			return errSlow
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return o.fail(attribute, value, err, "")
}

// gone reports whether the VF no longer exists, for instance because the administrator
// has recreated the VFs.
func (o *operation) gone() bool { return !o.sys.exists(o.sys.device(o.vf.PCI)) }
