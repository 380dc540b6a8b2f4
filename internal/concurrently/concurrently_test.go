package concurrently

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAnErrorKeepsNoOtherThingFromBeingDone(t *testing.T) {
	var done atomic.Int32
	failed := Each([]int{1, 2, 3, 4}, 1, func(n int) error {
		done.Add(1)
		if n%2 == 0 {
			return fmt.Errorf("%d is even", n)
		}
		return nil
	})
	if diff := cmp.Diff("2 is even\n4 is even", fmt.Sprint(errors.Join(failed...))); diff != "" || done.Load() != 4 {
		t.Errorf("%d done, errors (-want +got):\n%s", done.Load(), diff)
	}
	if failed[1] == nil || failed[2] != nil {
		t.Errorf("the errors are not in the order of the things: %v", failed)
	}
}

func TestSeveralThingsAreDoneAtOnceAndNoMoreThanAllowed(t *testing.T) {
	const atOnce = 3
	var mu sync.Mutex
	now, most, together := 0, 0, make(chan bool)
	Each(make([]int, 2*atOnce), atOnce, func(int) error {
		mu.Lock()
		now++
		if now == atOnce && most < now {
			close(together)
		}
		most = max(most, now)
		mu.Unlock()
		<-together // with fewer at once, this waits for ever
		mu.Lock()
		defer mu.Unlock()
		now--
		return nil
	})
	if most != atOnce {
		t.Errorf("%d were done at once, want %d", most, atOnce)
	}
}

func TestNothingToDo(t *testing.T) {
	if failed := Each(nil, 0, func(int) error { return errors.New("done") }); len(failed) != 0 {
		t.Errorf("errors %v", failed)
	}
}
