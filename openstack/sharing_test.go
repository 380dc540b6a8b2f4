package openstack

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
)

const first, second mark = "slurm-v:lab:7.0", "slurm-v:lab:8.0"

// obtain gets the image for a job, and checks that glance has its content.
func obtain(t *testing.T, f *faultyGlance, m mark, i Image) (id string) {
	t.Helper()
	id, err := glance{serviceOf(f)}.obtain(t.Context(), m, i)
	if err != nil {
		t.Fatalf("job %s: %v", m.job(), err)
	}
	checkImage(t, f, m, id)
	return id
}

// checkImage checks that a job can make servers of the image.
func checkImage(t *testing.T, f *faultyGlance, m mark, id string) {
	t.Helper()
	has := f.image(id)
	if has == nil || has["status"] != "active" || f.data[id] != "an image" || !slices.Contains(has["tags"].([]string), string(m)) {
		t.Errorf("the image %s of job %s: %v with %q; there are %v", id, m.job(), has, f.data[id], f.images)
	}
}

func release(t *testing.T, f *faultyGlance, m mark) {
	t.Helper()
	if err := (glance{serviceOf(f)}).deleteImages(t.Context(), m); err != nil {
		t.Errorf("release of job %s: %v", m.job(), err)
	}
}

// changing is a file that its user changes after it was read once.
type changing struct{ now, later string }

func (c *changing) ReadAt(into []byte, at int64) (int, error) {
	n := copy(into, c.now[at:])
	if at+int64(n) == int64(len(c.now)) {
		c.now = c.later
	}
	return n, nil
}

// Jobs with one image upload it once, and it goes with the last of them.
func TestJobsShareAnUpload(t *testing.T) {
	f := &faultyGlance{data: map[string]string{}}
	its := obtain(t, f, first, imageOf("an image"))
	if other := obtain(t, f, second, imageOf("an image")); other != its || f.puts != 1 {
		t.Errorf("images %s and %s, %d uploads", its, other, f.puts)
	}
	release(t, f, first)
	checkImage(t, f, second, its)
	if third := obtain(t, f, first, imageOf("an image")); third != its || f.puts != 1 {
		t.Errorf("images %s and %s, %d uploads", its, third, f.puts)
	}
	for _, m := range []mark{first, second, second} {
		release(t, f, m)
	}
	if len(f.images) != 0 {
		t.Errorf("left: %v", f.images)
	}
}

// A job gets no image but that which its own user can read, as the job needs it.
func TestWhatIsNotShared(t *testing.T) {
	other := func(change func(*Image)) Image {
		i := imageOf("an image")
		change(&i)
		return i
	}
	for name, tt := range map[string]struct {
		first, second Image
		fault         string
		mark          mark
	}{
		"another content":       {imageOf("my image"), imageOf("an image"), "", second},
		"another firmware":      {other(func(i *Image) { i.Options = map[string]string{"hw_firmware_type": "uefi"} }), imageOf("an image"), "", second},
		"another format":        {other(func(i *Image) { i.Format = "qcow2" }), imageOf("an image"), "", second},
		"another cluster":       {imageOf("an image"), imageOf("an image"), "", "slurm-v:hall:8.0"},
		"no room for its mark":  {imageOf("an image"), imageOf("an image"), "full of tags", second},
		"a file that changed":   {other(func(i *Image) { i.File = &changing{"an image", "my image"} }), imageOf("an image"), "", second},
		"an unknown end of it":  {imageOf("an image"), imageOf("an image"), "lost data", second},
		"another project's one": {imageOf("an image"), imageOf("an image"), "other owner", second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &faultyGlance{data: map[string]string{}, fault: tt.fault}
				its, err := glance{serviceOf(f)}.obtain(t.Context(), first, tt.first)
				if err != nil {
					t.Fatal(err)
				}
				if tt.fault == "other owner" {
					f.images[0]["owner"] = "other"
				}
				if own := obtain(t, f, tt.mark, tt.second); own == its || f.posts != 2 {
					t.Errorf("both have image %s of %d", its, f.posts)
				}
			})
		})
	}
}

// inTurns is a job whose requests to glance each wait for their turn.
type inTurns struct {
	*faultyGlance
	turn, done, ended chan struct{}
}

func (i inTurns) RoundTrip(r *http.Request) (*http.Response, error) {
	<-i.turn
	defer func() { i.done <- struct{}{} }()
	return i.faultyGlance.RoundTrip(r)
}

// begin starts what a job does.
func (f *faultyGlance) begin(do func(glance)) inTurns {
	i := inTurns{f, make(chan struct{}), make(chan struct{}), make(chan struct{})}
	go func() {
		defer close(i.ended)
		do(glance{serviceOf(i)})
	}()
	return i
}

// next lets a job make one request, or reports that it has ended.
func (i inTurns) next() bool {
	select {
	case i.turn <- struct{}{}:
		<-i.done
		return true
	case <-i.ended:
		return false
	}
}

// steps are so many requests that two jobs make in turns, before they go on one after the other.
const steps = 8

// inEachOrder lets two jobs make their requests in each order.
func inEachOrder(t *testing.T, test func(t *testing.T, f *faultyGlance) (one, other inTurns, check func())) {
	for order := range 1 << steps {
		f := &faultyGlance{data: map[string]string{}}
		one, other, check := test(t, f)
		for step := range steps {
			if order>>step&1 == 0 {
				one.next()
			} else {
				other.next()
			}
		}
		for one.next() || other.next() {
		}
		check()
		for _, m := range []mark{first, second} {
			release(t, f, m)
		}
		if len(f.images) != 0 {
			t.Errorf("left: %v", f.images)
		}
		if t.Failed() {
			t.Fatalf("in the order %b", order)
		}
	}
}

func ends(t *testing.T, m mark) func(glance) {
	return func(g glance) {
		if err := g.deleteImages(t.Context(), m); err != nil {
			t.Error(err)
		}
	}
}

// A job may look for an image at any moment of another's end.
func TestAnImageInUseIsNotDeleted(t *testing.T) {
	inEachOrder(t, func(t *testing.T, f *faultyGlance) (one, other inTurns, check func()) {
		obtain(t, f, first, imageOf("an image"))
		its := ""
		one = f.begin(ends(t, first))
		other = f.begin(func(g glance) {
			var err error
			if its, err = g.obtain(t.Context(), second, imageOf("an image")); err != nil {
				t.Error(err)
			}
		})
		return one, other, func() { checkImage(t, f, second, its) }
	})
}

// The last two jobs may end at once.
func TestNoImageOutlivesItsJobs(t *testing.T) {
	inEachOrder(t, func(t *testing.T, f *faultyGlance) (one, other inTurns, check func()) {
		obtain(t, f, first, imageOf("an image"))
		obtain(t, f, second, imageOf("an image"))
		return f.begin(ends(t, first)), f.begin(ends(t, second)), func() {
			if len(f.images) != 0 {
				t.Errorf("left: %v", f.images)
			}
		}
	})
}

// Whoever gives up an image may be killed before any of its requests. The next clean finds what is left.
func TestAnImageWhoseLastJobIsKilledGoes(t *testing.T) {
	const requests = 6
	for n := range requests {
		synctest.Test(t, func(t *testing.T) { killBefore(t, n) })
	}
}

func killBefore(t *testing.T, n int) {
	f := &faultyGlance{data: map[string]string{}}
	obtain(t, f, first, imageOf("an image"))
	left := n
	f.before = func(*http.Request) error {
		if left--; left < 0 {
			return errors.New("killed")
		}
		return nil
	}
	if err := (glance{serviceOf(f)}).deleteImages(t.Context(), first); err == nil {
		t.Fatalf("killed before request %d, and all is done", n)
	}
	f.before = nil
	release(t, f, first)
	if err := (&Cloud{label: "lab", glance: glance{serviceOf(f)}}).DeleteUnheldImages(t.Context()); err != nil || len(f.images) != 0 {
		t.Errorf("left: %v, %v", f.images, err)
	}
}

// What a running job holds is no rest, nor is what another cluster has.
func TestOnlyUnheldImagesAreDeleted(t *testing.T) {
	f := &faultyGlance{data: map[string]string{}}
	obtain(t, f, first, imageOf("an image"))
	obtain(t, f, "slurm-v:hall:8.0", imageOf("an image"))
	f.images[1]["tags"] = slices.DeleteFunc(f.images[1]["tags"].([]string), isHolder)
	lab, hall := &Cloud{label: "lab", glance: glance{serviceOf(f)}}, &Cloud{label: "hall", glance: glance{serviceOf(f)}}
	if err := lab.DeleteUnheldImages(t.Context()); err != nil || len(f.images) != 2 {
		t.Errorf("there are %v, %v", f.images, err)
	}
	if err := hall.DeleteUnheldImages(t.Context()); err != nil || len(f.images) != 1 {
		t.Errorf("there are %v, %v", f.images, err)
	}
	checkImage(t, f, first, "1")
}
