package cache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	noContext = context.Background()
	errStop   = errors.New("stop")
)

func contextWithCause(t *testing.T) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	return ctx, cancel
}

func TestVictims(t *testing.T) {
	used := []string{"1.0"}
	// As List has them: the last used first.
	entries := []Entry{
		{Key: "new", Bytes: 10}, {Key: "used", Bytes: 20, Holders: used}, {Key: "middle", Bytes: 30},
		{Key: "coming", Bytes: 15, Missing: 5, Holders: used}, {Key: "old", Bytes: 40},
	}
	tests := map[string]struct {
		need    int64
		has     space
		want    []Key
		wantErr bool
	}{
		"there is room":                       {10, space{125, 100}, nil, false},
		"the last byte of the limit":          {10, space{124, 100}, []Key{"old"}, false},
		"what is coming needs the disk, too":  {10, space{1000, 14}, []Key{"old"}, false},
		"the disk has just enough for both":   {10, space{1000, 15}, nil, false},
		"the longest unused go first":         {60, space{125, 100}, []Key{"old", "middle"}, false},
		"all that nobody holds":               {80, space{115, 100}, []Key{"old", "middle", "new"}, false},
		"what is held stays":                  {81, space{115, 100}, nil, true},
		"a disk full of other things":         {81, space{1000, 5}, nil, true},
		"an image that is larger than all":    {200, space{100, 1000}, nil, true},
		"an image without a byte always fits": {0, space{115, 100}, nil, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			chosen, err := victims(entries, tt.need, tt.has)
			if errors.Is(err, errNoRoom) != tt.wantErr {
				t.Fatalf("error = %v", err)
			}
			var got []Key
			for _, e := range chosen {
				got = append(got, e.Key)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("victims differ (-want +got):\n%s", diff)
			}
		})
	}
}

func sources(t *testing.T, c *Cache) (names []string) {
	t.Helper()
	all, err := c.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Source)
	}
	return names
}

// used makes the copy of path the one that was used some hours ago.
func (c *Cache) used(t *testing.T, path string, hours int) {
	t.Helper()
	when := time.Now().Add(-time.Duration(hours) * time.Hour)
	if err := os.Chtimes(c.entry(keyOf(t, path)).recordFile(), when, when); err != nil {
		t.Fatal(err)
	}
}

func TestTheLongestUnusedMakesRoomAndWhatIsUsedStays(t *testing.T) {
	const size = 1 << 20
	c := testCache(t.TempDir(), 3*size+size/2)
	a, b, held, d := image(t, "a", size), image(t, "b", size), image(t, "held", size), image(t, "d", size)
	get(t, c, held, "1")
	get(t, c, a, "2")
	get(t, c, b, "2")
	if err := errors.Join(c.Release("2"), c.Release("2"), c.Release("nobody")); err != nil {
		t.Fatal(err)
	}
	c.used(t, held, 9)
	c.used(t, b, 5)
	c.used(t, a, 4)
	get(t, c, a, "3") // and so a was used later than b
	if err := c.Release("3"); err != nil {
		t.Fatal(err)
	}
	get(t, c, d, "4")
	if diff := cmp.Diff([]string{d, a, held}, sources(t, c)); diff != "" {
		t.Errorf("the cache has (-want +got):\n%s", diff)
	}
	get(t, c, a, "5")
	if _, err := c.Get(t.Context(), source(t, b), "6", nil); !errors.Is(err, errNoRoom) {
		t.Errorf("with all copies in use: error = %v", err)
	}
	if n := len(sources(t, c)); n != 3 {
		t.Errorf("%d entries are left", n)
	}
}

func TestACopyIsUsedWhenItIsFoundAndUntilItIsGivenBack(t *testing.T) {
	c, path := testCache(t.TempDir(), 0), image(t, "i", 100<<10)
	get(t, c, path, "1")
	for what, use := range map[string]func(){
		"a job finds it": func() { get(t, c, path, "2") },
		"it is released": func() {
			if err := c.Release("1"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		c.used(t, path, 5)
		use()
		if all, err := c.List(); err != nil || time.Since(all[0].Used) > time.Hour {
			t.Errorf("%s: last used %v, error %v", what, all[0].Used, err)
		}
	}
}

// The agent that held it is gone; the record of what it held is not.
func TestAKilledHoldersCopyStays(t *testing.T) {
	c, path := testCache(t.TempDir(), 0), image(t, "i", 100<<10)
	p := start(t, c, path, "7.0", "")
	if said := p.line(); said != "made: true" {
		t.Fatal(said)
	}
	p.kill()
	if gone, err := c.Forget(t.Context(), func(Entry) bool { return true }); err != nil || len(gone) > 0 {
		t.Errorf("removed %+v, error %v", gone, err)
	}
	alive := true
	live := func(holder string) bool { return holder != "7.0" || alive }
	if err := c.Clean(t.Context(), live); err != nil || len(c.holdersOf(t, path)) != 1 {
		t.Errorf("Clean gave back what a job has; error %v", err)
	}
	alive = false
	if err := c.Clean(t.Context(), live); err != nil || len(c.holdersOf(t, path)) != 0 {
		t.Errorf("Clean left what nobody has; error %v", err)
	}
	if got := get(t, c, path, "8.0"); got.Made {
		t.Error("the copy itself is gone")
	}
}

func TestCleanRemovesWhatWasNeverFinished(t *testing.T) {
	c, path := testCache(t.TempDir(), 0), image(t, "i", 100<<10)
	whole := image(t, "whole", 100<<10)
	get(t, c, whole, "1")
	p := start(t, c, path, "7.0", "copied")
	if said := p.line(); said != "copied" {
		t.Fatal(said)
	}
	p.kill()
	if err := c.Clean(t.Context(), func(holder string) bool { return holder == "1" }); err != nil {
		t.Fatal(err)
	}
	if got := sources(t, c); !slices.Equal(got, []string{whole}) {
		t.Errorf("left: %v", got)
	}
}

func TestForget(t *testing.T) {
	c := testCache(t.TempDir(), 0)
	a, b := image(t, "a", 100<<10), image(t, "b", 100<<10)
	get(t, c, a, "1")
	get(t, c, b, "2")
	if err := c.Release("1"); err != nil {
		t.Fatal(err)
	}
	gone, err := c.Forget(t.Context(), func(Entry) bool { return true })
	if err != nil || len(gone) != 1 || gone[0].Source != a {
		t.Errorf("removed %+v, error %v", gone, err)
	}
	if got := sources(t, c); !slices.Equal(got, []string{b}) {
		t.Errorf("left: %v", got)
	}
}

func TestACacheThatWasNeverUsed(t *testing.T) {
	c := testCache(t.TempDir()+"/none", 0)
	nothingIn(t, c)
	if err := errors.Join(c.Release("1"), c.Clean(t.Context(), func(string) bool { return false })); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(c.dir); err == nil {
		t.Error("looking at it has made it")
	}
}

// Small files cost no room, but each entry costs those who look for some.
func TestEntriesAreLimited(t *testing.T) {
	c := testCache(t.TempDir(), 0)
	c.most = 3
	var paths []string
	for i := range 5 {
		paths = append(paths, image(t, fmt.Sprint(i), 1<<10))
	}
	for i, path := range paths[:4] {
		get(t, c, path, fmt.Sprint(i))
		if i < 2 {
			if err := c.Release(fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The fourth has taken the place of one of the two that nobody holds.
	if all, err := c.List(); err != nil || len(all) != 3 {
		t.Fatalf("%d entries, %v", len(all), err)
	}
	get(t, c, paths[4], "4")
	if _, err := c.Get(t.Context(), source(t, paths[0]), "5", nil); !errors.Is(err, errNoRoom) {
		t.Errorf("error = %v, want %v", err, errNoRoom)
	}
	for i, path := range paths[2:] {
		if got := get(t, c, path, "6"); got.Made {
			t.Errorf("the copy that job %d holds was removed", i+2)
		}
	}
}
