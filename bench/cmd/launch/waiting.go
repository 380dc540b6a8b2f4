package main

import "context"

// waitingResult compares ways to start guests that spend most of their boot waiting, as
// real guests do for disks, devices and services.
type waitingResult struct {
	VMs      int    `json:"vms"`  // on one node
	Wait     int    `json:"wait"` // seconds of sleep in the boot of each
	Serial   launch `json:"serial"`
	Parallel launch `json:"parallel"`
}

// saved returns the part of the serial time that a parallel start saves.
func (w waitingResult) saved() float64 { return 1 - w.Parallel.Seconds/w.Serial.Seconds }

func measureWaiting(ctx context.Context, b *bench, r *results) error {
	result := waitingResult{VMs: 16, Wait: 75}
	if b.quick {
		result = waitingResult{VMs: 4, Wait: 20}
	}
	image, err := guestImage(ctx, b, "waits", sleepFor, result.Wait)
	if err != nil {
		return err
	}
	c, err := up(ctx, shape{nodes: 1, cpus: 32})
	if err != nil {
		return err
	}
	all := job{nodes: 1, vms: result.VMs, options: []string{"--vm-start=cold", "--vm-image=" + image}}
	if result.Parallel, err = c.launch(ctx, all); err != nil {
		return err
	}
	b.say("%d waiting VMs in parallel: %.1f s", result.VMs, result.Parallel.Seconds)
	if err := c.configure("[measure]\nserial = true\n"); err != nil {
		return err
	}
	if result.Serial, err = c.launch(ctx, all); err != nil {
		return err
	}
	b.say("%d waiting VMs one after another: %.1f s", result.VMs, result.Serial.Seconds)
	r.Waiting = &result
	return nil
}
