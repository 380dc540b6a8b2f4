package vmlaunch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/semaphore"

	"github.com/slurm-v/slurm-v/vmlaunch/machine"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmstep"
)

func TestParallel(t *testing.T) {
	tests := map[string]struct {
		change func(*plan.Plan)
		busy   bool
		want   int64
	}{
		"goes by the CPUs":              {func(*plan.Plan) {}, false, 24},
		"which some guests keep busy":   {func(*plan.Plan) {}, true, 3},
		"or is the site's":              {func(p *plan.Plan) { p.Launch.Parallel = 5 }, true, 5},
		"or one, for a measurement":     {func(p *plan.Plan) { p.Measure.Serial = true }, false, 1},
		"which is more than the site's": {func(p *plan.Plan) { p.Measure.Serial, p.Launch.Parallel = true, 5 }, false, 1},
		"all that nova has started":     {func(p *plan.Plan) { p.Hardware.Foreign, p.Launch.Parallel, p.VMs = true, 5, make([]plan.VM, 30) }, true, 30},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var p plan.Plan
			tt.change(&p)
			if got, _ := parallel(p, 3, tt.busy); got != tt.want {
				t.Errorf("%d at once, want %d", got, tt.want)
			}
		})
	}
}

func TestTurnsEndEarlyWhereVMsWait(t *testing.T) {
	var site plan.Plan
	site.Launch.Parallel = 3
	tests := map[string]struct {
		plan plan.Plan
		vms  int
		want bool
	}{
		"more VMs than turns":       {plan.Plan{}, 4, true},
		"a turn for each":           {plan.Plan{}, 3, false},
		"the site's number of them": {site, 4, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := newTurns(tt.plan, 3, true, tt.vms).early; got != tt.want {
				t.Errorf("turns end early: %t, want %t", got, tt.want)
			}
		})
	}
}

func TestAVMThatHasToWaitSaysSo(t *testing.T) {
	var told []string
	two := plan.Plan{VMs: make([]plan.VM, 2)}
	vms := machine.NewSet(two, machine.StartStopwatch(time.Time{}), func(p vmstep.Progress) { told = append(told, p.Stage) }).Machines
	turns := turns{free: semaphore.NewWeighted(1)}
	if _, err := turns.take(t.Context(), vms[0]); err != nil || told != nil {
		t.Errorf("the first VM waits: %v, %v", told, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := turns.take(ended, vms[1]); !errors.Is(err, context.Canceled) {
		t.Errorf("the second VM does not wait: %v", err)
	}
	if diff := cmp.Diff([]string{"wait"}, told); diff != "" {
		t.Errorf("progress differs (-want +got):\n%s", diff)
	}
}

func TestATurnEndsWhenTheGuestWaits(t *testing.T) {
	second := time.Second
	tests := map[string]struct {
		early    bool
		computed []time.Duration // at each look; then there is no guest to look at
		want     time.Duration   // when the turn ends; 0 when the VM is ready
	}{
		"at once":                   {true, []time.Duration{second, second}, idleFor},
		"after it has computed":     {true, []time.Duration{0, second, 2 * second, 2*second + 1}, 3 * idleFor},
		"but not one that computes": {true, []time.Duration{0, idleFor / 2, idleFor}, 0},
		"nor by turns of the site":  {false, []time.Duration{second, second}, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, ended := time.Now(), time.Duration(0)
				end := func() { ended = time.Since(began) }
				turn{end, tt.early}.watch(t.Context(), func() (time.Duration, error) {
					if len(tt.computed) == 0 {
						return 0, errors.New("no QEMU")
					}
					now := tt.computed[0]
					tt.computed = tt.computed[1:]
					return now, nil
				})
				if ended != tt.want {
					t.Errorf("the turn ended after %v, want %v", ended, tt.want)
				}
			})
		})
	}
}

func TestAWatchedTurnEndsWithTheLaunch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		busy := func() (time.Duration, error) { return time.Since(began), nil }
		turn{func() { t.Error("the turn of a busy guest ends") }, true}.watch(ctx, busy)
		if ctx.Err() == nil {
			t.Error("nobody watches any more")
		}
	})
}
