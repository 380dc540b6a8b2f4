package vmlaunch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/semaphore"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/vmstep"
)

func TestParallel(t *testing.T) {
	tests := map[string]struct {
		change func(*config.Config)
		busy   bool
		want   int64
	}{
		"goes by the CPUs":              {func(*config.Config) {}, false, 24},
		"which some guests keep busy":   {func(*config.Config) {}, true, 3},
		"or is the site's":              {func(c *config.Config) { c.Launch.Parallel = 5 }, true, 5},
		"or one, for a measurement":     {func(c *config.Config) { c.Measure.Serial = true }, false, 1},
		"which is more than the site's": {func(c *config.Config) { c.Measure.Serial, c.Launch.Parallel = true, 5 }, false, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := config.Default()
			tt.change(&cfg)
			if got, _ := parallel(cfg, 3, tt.busy); got != tt.want {
				t.Errorf("%d at once, want %d", got, tt.want)
			}
		})
	}
}

func TestTurnsEndEarlyWhereVMsWait(t *testing.T) {
	site := config.Default()
	site.Launch.Parallel = 3
	tests := map[string]struct {
		cfg  config.Config
		vms  int
		want bool
	}{
		"more VMs than turns":       {config.Default(), 4, true},
		"a turn for each":           {config.Default(), 3, false},
		"the site's number of them": {site, 4, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := newTurns(tt.cfg, 3, true, tt.vms).early; got != tt.want {
				t.Errorf("turns end early: %t, want %t", got, tt.want)
			}
		})
	}
}

func TestAVMThatHasToWaitSaysSo(t *testing.T) {
	var told []string
	n := newNode(Plan{VMs: make([]VMPlan, 2)}, nil, startStopwatch(time.Time{}), func(p vmstep.Progress) { told = append(told, p.Stage) })
	turns := turns{free: semaphore.NewWeighted(1)}
	if err := turns.take(t.Context(), n.machines[0]); err != nil || told != nil {
		t.Errorf("the first VM waits: %v, %v", told, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := turns.take(ended, n.machines[1]); !errors.Is(err, context.Canceled) {
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
