package vmlaunch

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestPatienceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := withPatience(t.Context(), time.Minute)
		defer cancel()
		<-ctx.Done()
		if took := time.Since(began); took != time.Minute || !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			t.Errorf("ended after %v with the cause %v", took, context.Cause(ctx))
		}
	})
}

func TestPatienceBeginsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := make(chan struct{})
		ctx, cancel := withPatienceFrom(t.Context(), begin, time.Minute)
		defer cancel()
		time.Sleep(time.Hour)
		if ctx.Err() != nil {
			t.Fatalf("ended before it began: %v", context.Cause(ctx))
		}
		close(begin)
		began := time.Now()
		<-ctx.Done()
		if took := time.Since(began); took != time.Minute || !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			t.Errorf("ended after %v with the cause %v", took, context.Cause(ctx))
		}
	})
}

func TestPatienceIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := withPatience(t.Context(), time.Minute)
		cancel()
		if errors.Is(context.Cause(ctx), context.DeadlineExceeded) || ctx.Err() == nil {
			t.Errorf("the cause is %v", context.Cause(ctx))
		}
	})
}

func TestTimeInWhichTheJobWasSuspendedDoesNotCount(t *testing.T) {
	tests := map[string]struct{ passed, want time.Duration }{
		"in time":          {time.Second, time.Second},
		"late, under load": {2500 * time.Millisecond, 2500 * time.Millisecond},
		"suspended":        {2 * time.Hour, 3 * time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := counted(tt.passed); got != tt.want {
				t.Errorf("%v of %v count, want %v", got, tt.passed, tt.want)
			}
		})
	}
}

func TestServersThatDoNotStartInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := serveWithin(t.Context(), time.Minute, func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("serve the directory /d to VMs: %w", context.Cause(ctx))
		})
		want := "serve the directory /d to VMs: context deadline exceeded: the node or a file server has not answered within 1m0s (--vm-ready-timeout)"
		if err == nil || err.Error() != want {
			t.Errorf("error = %v, want %s", err, want)
		}
	})
}
