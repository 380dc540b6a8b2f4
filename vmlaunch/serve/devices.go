package serve

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/pmi"
)

// devices are the IVShmem devices of this node's VMs and the runs that use them.
//
// Nodes are not told when a claim ends. A node notices it when the first program of a later
// claim on the same device comes. The node then ends what is left of the earlier run, waits
// until the guests confirm it, zeroes the device, and only then starts the program. So no
// run sees another's data, and the nodes need not talk to each other.
type devices struct {
	mu   sync.Mutex
	vms  int
	all  []ivshmemDevice
	wipe func(device int) error // zeroes the device's region
}

type ivshmemDevice struct {
	over uint64 // claims up to this number have ended
	use  *use   // of the newest claim; nil before the first
	lost error  // why nobody may use the device again: an earlier program may still write to it
}

// A use is a run's use of a device on this node.
type use struct {
	claim nodeagent.Claim
	vm    []int // VM of each share of the run's tasks
	loads []int // how many of the tasks are in each VM
	tasks int   // how many tasks will come

	begun, running int // programs so far, and now
	programs       sync.WaitGroup

	over    context.Context // ends with the claim
	end     context.CancelFunc
	ready   chan struct{} // closed when the device is zeroed, or err is set
	err     error
	devices *devices
}

func newDevices(count, vms int, wipe func(int) error) *devices {
	return &devices{vms: vms, all: make([]ivshmemDevice, count), wipe: wipe}
}

// enter counts a program of a run in and returns when its device is ready. The caller must
// call leave on the use.
func (d *devices) enter(ctx context.Context, r nodeagent.Request) (*use, error) {
	u, err := d.join(r)
	if err != nil {
		return nil, err
	}
	select {
	case <-u.ready:
		err = u.err
	case <-u.over.Done():
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if u.over.Err() != nil {
		err = errOver(u.claim)
	}
	if err != nil {
		u.leave(nil)
		return nil, err
	}
	return u, nil
}

func errOver(c nodeagent.Claim) error {
	return fmt.Errorf("the claim of this run on IVShmem device %d has ended", c.Device)
}

// join finds the use for a program, or begins it.
func (d *devices) join(r nodeagent.Request) (*use, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := *r.Claim
	if c.Device < 0 || c.Device >= len(d.all) {
		return nil, fmt.Errorf("the job has no IVShmem device %d", c.Device)
	}
	dev := &d.all[c.Device]
	if c.Number <= dev.over {
		return nil, errOver(c)
	}
	if dev.use == nil || dev.use.claim != c {
		d.begin(dev, r)
	}
	u := dev.use
	u.begun++
	u.running++
	u.programs.Add(1)
	return u, nil
}

// begin starts the use of a newer claim and ends the earlier one.
func (d *devices) begin(dev *ivshmemDevice, r nodeagent.Request) {
	earlier := dev.use
	u := &use{claim: *r.Claim, tasks: 1, ready: make(chan struct{}), devices: d}
	u.over, u.end = context.WithCancel(context.Background())
	dev.use = u
	dev.over = u.claim.Number - 1
	if earlier != nil {
		earlier.end()
	}
	if r.VM == nodeagent.ByDistribution {
		u.tasks = r.LocalTasks
		u.vm, u.loads = spread(r.LocalTasks, d.loads())
	}
	go d.prepare(u, earlier)
}

// prepare zeroes the device once all programs of the earlier run have ended.
func (d *devices) prepare(u, earlier *use) {
	defer close(u.ready)
	if earlier != nil {
		<-earlier.ready
		earlier.programs.Wait()
	}
	d.mu.Lock()
	u.err = d.all[u.claim.Device].lost
	d.mu.Unlock()
	if u.err == nil {
		u.err = d.wipe(u.claim.Device)
	}
}

// loads counts the tasks of all live runs in each VM.
func (d *devices) loads() []int {
	loads := make([]int, d.vms)
	for i := range d.all {
		if u := d.all[i].use; u != nil && u.live() {
			for vm, tasks := range u.loads {
				loads[vm] += tasks
			}
		}
	}
	return loads
}

// live reports whether tasks of the run are on this node or still to come.
func (u *use) live() bool {
	return u.over.Err() == nil && (u.running > 0 || u.begun < u.tasks)
}

// vmOf returns the index of the VM on this node for a task of the run.
func (u *use) vmOf(r nodeagent.Request) (int, error) {
	dist, err := pmi.ParseDistribution(r.Distribution)
	if err != nil {
		return 0, err
	}
	if u.vm == nil || r.LocalTasks != u.tasks {
		return 0, errors.New("the tasks of a run do not agree on how many they are")
	}
	return u.vm[pmi.VMOf(r.LocalID, r.LocalTasks, len(u.vm), dist)], nil
}

// leave counts a program out. lost is an error if something of the program may still run in
// the VM.
func (u *use) leave(lost error) {
	u.devices.mu.Lock()
	u.running--
	if dev := &u.devices.all[u.claim.Device]; lost != nil && dev.lost == nil {
		dev.lost = fmt.Errorf("IVShmem device %d may still be in use by an earlier run: %w", u.claim.Device, lost)
	}
	u.devices.mu.Unlock()
	u.programs.Done()
}

// end ends the programs of a claim and of earlier claims, refuses further ones, and returns
// when all have ended.
func (d *devices) end(c nodeagent.Claim) {
	d.mu.Lock()
	dev := &d.all[c.Device]
	dev.over = max(dev.over, c.Number)
	u := dev.use
	if u != nil && u.claim.Number > c.Number {
		u = nil
	}
	d.mu.Unlock()
	if u != nil {
		u.end()
		u.programs.Wait()
	}
}

// busy reports whether programs of a claim run on this node.
func (d *devices) busy(c nodeagent.Claim) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	u := d.all[c.Device].use
	return u != nil && u.claim == c && u.running > 0
}

// claims returns the claims whose programs may run on this node.
func (d *devices) claims() []nodeagent.Claim {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []nodeagent.Claim
	for i := range d.all {
		if u := d.all[i].use; u != nil && u.over.Err() == nil {
			all = append(all, u.claim)
		}
	}
	return all
}
