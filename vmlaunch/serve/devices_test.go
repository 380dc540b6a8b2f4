package serve

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// request is the request of the relay of task id among tasks local tasks.
func request(c nodeagent.Claim, id, tasks int) nodeagent.Request {
	return nodeagent.Request{Op: nodeagent.OpExec, VM: nodeagent.ByDistribution, LocalID: id, LocalTasks: tasks, Claim: &c}
}

func claimOn(device int, number uint64) nodeagent.Claim {
	return nodeagent.Claim{Device: device, Number: number}
}

// entered counts a program in that must be let in.
func entered(t *testing.T, d *devices, r nodeagent.Request) *use {
	t.Helper()
	u, err := d.enter(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// A wiper counts how often each device was zeroed.
type wiper struct {
	times [4]atomic.Int32
	err   error
}

func (w *wiper) wipe(k int) error {
	w.times[k].Add(1)
	return w.err
}

func TestADeviceIsZeroedBetweenRuns(t *testing.T) {
	var w wiper
	d := newDevices(2, 2, w.wipe)
	first := claimOn(0, 1)
	a, b := entered(t, d, request(first, 0, 2)), entered(t, d, request(first, 1, 2))
	if n := w.times[0].Load(); n != 1 {
		t.Errorf("for the first run: zeroed %d times", n)
	}
	a.leave(nil)
	b.leave(nil)
	entered(t, d, request(claimOn(1, 2), 0, 1)).leave(nil)
	entered(t, d, request(claimOn(0, 3), 0, 1)).leave(nil)
	if x, y := w.times[0].Load(), w.times[1].Load(); x != 2 || y != 1 {
		t.Errorf("zeroed %d and %d times", x, y)
	}
}

// A later claim ends what is left of an earlier one, and waits until it is gone.
func TestALaterClaimEndsAnEarlierOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inUse atomic.Bool
		d := newDevices(1, 1, func(int) error {
			if inUse.Load() {
				t.Error("zeroed while somebody uses it")
			}
			return nil
		})
		old := entered(t, d, request(claimOn(0, 1), 0, 1))
		inUse.Store(true)
		go func() {
			<-old.over.Done()
			time.Sleep(time.Minute) // the guest takes its time
			inUse.Store(false)
			old.leave(nil)
		}()
		began := time.Now()
		later := entered(t, d, request(claimOn(0, 2), 0, 1))
		if took := time.Since(began); took != time.Minute {
			t.Errorf("let in after %v", took)
		}
		if _, err := d.enter(t.Context(), request(claimOn(0, 1), 0, 1)); err == nil || !strings.Contains(err.Error(), "has ended") {
			t.Errorf("a late program of the earlier run: %v", err)
		}
		later.leave(nil)
	})
}

// Of three runs, the last waits for the first, though the second never got in.
func TestAClaimThatNeverGotIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDevices(1, 1, func(int) error { return nil })
		first := entered(t, d, request(claimOn(0, 1), 0, 1))
		second := make(chan error, 1)
		go func() {
			_, err := d.enter(t.Context(), request(claimOn(0, 2), 0, 1))
			second <- err
		}()
		synctest.Wait()
		third := make(chan *use, 1)
		go func() {
			u, _ := d.enter(t.Context(), request(claimOn(0, 3), 0, 1))
			third <- u
		}()
		synctest.Wait()
		if err := <-second; err == nil || !strings.Contains(err.Error(), "has ended") {
			t.Errorf("the second: %v", err)
		}
		select {
		case <-third:
			t.Error("the third got in beside the first")
		default:
		}
		first.leave(nil)
		if u := <-third; u == nil {
			t.Error("the third did not get in")
		} else {
			u.leave(nil)
		}
	})
}

func TestADeviceThatCannotBeHadAgain(t *testing.T) {
	var w wiper
	d := newDevices(2, 1, w.wipe)
	entered(t, d, request(claimOn(0, 1), 0, 1)).leave(errors.New("the VM is lost"))
	_, err := d.enter(t.Context(), request(claimOn(0, 2), 0, 1))
	if want := "IVShmem device 0 may still be in use by an earlier run: the VM is lost"; err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
	if n := w.times[0].Load(); n != 1 {
		t.Errorf("zeroed %d times", n)
	}
	entered(t, d, request(claimOn(1, 3), 0, 1)).leave(nil)

	w.err = errors.New("no memory")
	if _, err := d.enter(t.Context(), request(claimOn(1, 4), 0, 1)); !errors.Is(err, w.err) {
		t.Errorf("error = %v, want %v", err, w.err)
	}
	w.err = nil
	entered(t, d, request(claimOn(1, 5), 0, 1)).leave(nil)
}

func TestEnterRefuses(t *testing.T) {
	tests := map[string]struct {
		claim nodeagent.Claim
		want  string
	}{
		"a device that is not there": {claimOn(2, 9), "the job has no IVShmem device 2"},
		"a device below zero":        {claimOn(-1, 9), "the job has no IVShmem device -1"},
		"a claim that has ended":     {claimOn(0, 5), "the claim of this run on IVShmem device 0 has ended"},
		"one before it":              {claimOn(0, 4), "the claim of this run on IVShmem device 0 has ended"},
	}
	d := newDevices(2, 1, func(int) error { return nil })
	d.end(claimOn(0, 5))
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := d.enter(t.Context(), request(tt.claim, 0, 1)); err == nil || err.Error() != tt.want {
				t.Errorf("error = %v, want %s", err, tt.want)
			}
		})
	}
}

func TestEnterEndsWithItsContext(t *testing.T) {
	zeroing := make(chan struct{})
	d := newDevices(1, 1, func(int) error { <-zeroing; return nil })
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the step ends")
	go cancel(why)
	if _, err := d.enter(ctx, request(claimOn(0, 1), 0, 1)); !errors.Is(err, why) {
		t.Errorf("error = %v, want %v", err, why)
	}
	close(zeroing)
}

func TestClaimsOfANode(t *testing.T) {
	d := newDevices(2, 1, func(int) error { return nil })
	a := entered(t, d, request(claimOn(0, 1), 0, 1))
	b := entered(t, d, request(claimOn(1, 2), 0, 1))
	if !d.busy(a.claim) || d.busy(claimOn(0, 2)) {
		t.Error("the device of the first claim is busy by that claim alone")
	}
	a.leave(nil)
	if d.busy(a.claim) {
		t.Error("a run without programs is busy")
	}
	if diff := cmp.Diff([]nodeagent.Claim{a.claim, b.claim}, d.claims()); diff != "" {
		t.Errorf("claims differ (-want +got):\n%s", diff)
	}
	d.end(a.claim)
	if diff := cmp.Diff([]nodeagent.Claim{b.claim}, d.claims()); diff != "" {
		t.Errorf("after the end of one, claims differ (-want +got):\n%s", diff)
	}
	b.leave(nil)
}

// Where the tasks of runs go that are here at the same time.
func TestPlacesOfConcurrentRuns(t *testing.T) {
	d := newDevices(5, 2, func(int) error { return nil })
	places := func(c nodeagent.Claim, tasks int, dist string) (vms []int, all []*use) {
		for i := range tasks {
			r := request(c, i, tasks)
			r.Distribution = dist
			u := entered(t, d, r)
			vm, err := u.vmOf(r)
			if err != nil {
				t.Fatal(err)
			}
			vms, all = append(vms, vm), append(all, u)
		}
		return vms, all
	}
	check := func(what string, want, got []int) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: VMs differ (-want +got):\n%s", what, diff)
		}
	}
	first, _ := places(claimOn(0, 1), 3, "block")
	check("alone", []int{0, 0, 1}, first)
	second, uses := places(claimOn(1, 2), 3, "cyclic")
	check("beside it, most where it has fewer", []int{1, 0, 1}, second)
	for _, u := range uses[1:] {
		u.leave(nil)
	}
	third, thirdUses := places(claimOn(2, 3), 2, "block")
	check("while one is not quite over", []int{0, 1}, third)
	uses[0].leave(nil)
	thirdUses[0].leave(nil)
	thirdUses[1].leave(nil)
	fourth, _ := places(claimOn(3, 4), 1, "block")
	check("when both are", []int{1}, fourth)

	u := entered(t, d, request(claimOn(4, 5), 0, 2))
	if _, err := u.vmOf(request(claimOn(4, 5), 0, 3)); err == nil {
		t.Error("tasks that do not agree have a place")
	}
}

// Many relays of many runs, some of which die: never do two runs use a device at once.
func TestDevicesInARush(t *testing.T) {
	const count, runs, tasks = 2, 60, 4
	var using [count]atomic.Int64 // the claim, + 1 in the high bits for each program
	d := newDevices(count, 2, func(k int) error {
		if n := using[k].Load(); n != 0 {
			t.Errorf("device %d is zeroed while %d programs use it", k, n)
		}
		return nil
	})
	var all sync.WaitGroup
	for run := range runs {
		for i := range tasks {
			all.Go(func() {
				c := claimOn(run%count, uint64(run+1))
				u, err := d.enter(t.Context(), request(c, i, tasks))
				if err != nil {
					return
				}
				using[c.Device].Add(1)
				select {
				case <-u.over.Done():
				case <-time.After(time.Duration(run*10) * time.Microsecond):
				}
				using[c.Device].Add(-1)
				u.leave(nil)
			})
		}
	}
	all.Wait()
}
