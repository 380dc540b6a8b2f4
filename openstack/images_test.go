package openstack

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A faultyGlance is glance as far as uploads go. A fault happens to the first request of its kind.
type faultyGlance struct {
	fault       string
	images      []map[string]any
	data        map[string]string // by image
	posts, puts int
	stored      time.Time                 // when a slow glance has all of the image
	before      func(*http.Request) error // of each request

	mu sync.Mutex
}

func (f *faultyGlance) RoundTrip(r *http.Request) (answer *http.Response, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.before != nil {
		if err := f.before(r); err != nil {
			return nil, err
		}
	}
	at := strings.Split(strings.TrimPrefix(r.URL.Path, "/images"), "/") // "", image, "tags", tag
	switch {
	case len(at) == 4:
		answer, err = f.tag(r.Method, at[1], at[3])
	case r.Method == http.MethodPost:
		answer, err = f.post(r)
	case r.Method == http.MethodPut:
		answer, err = f.put(r)
	case r.Method == http.MethodDelete:
		f.images = slices.DeleteFunc(f.images, func(i map[string]any) bool { return i["id"] == at[1] })
		answer, err = reply(204, nil)
	case len(at) == 2:
		answer, err = f.get(at[1])
	default:
		answer, err = f.list(r)
	}
	if answer != nil {
		answer.Request = r
	}
	return answer, err
}

func (f *faultyGlance) image(id string) map[string]any {
	for _, i := range f.images {
		if i["id"] == id {
			return i
		}
	}
	return nil
}

func (f *faultyGlance) get(id string) (*http.Response, error) {
	if i := f.image(id); i != nil {
		return reply(200, i)
	}
	return reply(404, nil)
}

func (f *faultyGlance) list(r *http.Request) (*http.Response, error) {
	if !f.stored.IsZero() && time.Now().After(f.stored) {
		f.images[0]["status"] = "active"
	}
	found, tag, status := []map[string]any{}, r.URL.Query().Get("tag"), r.URL.Query().Get("status")
	for _, i := range f.images {
		if (tag == "" || slices.Contains(i["tags"].([]string), tag)) && (status == "" || i["status"] == status) {
			found = append(found, i)
		}
	}
	return reply(200, map[string]any{"images": found})
}

func (f *faultyGlance) tag(method, id, tag string) (*http.Response, error) {
	i := f.image(id)
	if i == nil {
		return reply(404, nil)
	}
	tags := i["tags"].([]string)
	left := slices.DeleteFunc(slices.Clone(tags), func(t string) bool { return t == tag })
	switch {
	case method == http.MethodPut && f.fault == "full of tags" && isHolder(tag):
		return reply(413, nil)
	case method == http.MethodPut:
		i["tags"] = append(left, tag)
	case len(left) == len(tags):
		return reply(404, nil)
	default:
		i["tags"] = left
	}
	return reply(204, nil)
}

var errReset = &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}

func (f *faultyGlance) post(r *http.Request) (*http.Response, error) {
	f.posts++
	var wants struct {
		Name string
		Tags []string
	}
	if err := json.NewDecoder(r.Body).Decode(&wants); err != nil {
		return nil, err
	}
	image := map[string]any{"id": strconv.Itoa(f.posts), "owner": "site", "status": "queued", "name": wants.Name, "tags": wants.Tags}
	f.images = append(f.images, image)
	if f.fault == "lost image" && f.posts == 1 {
		return nil, errReset
	}
	return reply(201, image)
}

func (f *faultyGlance) put(r *http.Request) (*http.Response, error) {
	at := slices.IndexFunc(f.images, func(i map[string]any) bool { return i["id"] == path.Base(path.Dir(r.URL.Path)) })
	image := f.images[at]
	if f.puts++; f.puts == 1 {
		switch f.fault {
		case "away":
			return reply(503, nil)
		case "full":
			return reply(413, nil)
		case "killed":
			time.Sleep(10 * time.Minute)
			image["status"] = "saving"
			return nil, errReset
		}
	}
	switch f.fault {
	case "stands still":
		if f.puts == 1 {
			return nil, standStill(r)
		}
	case "stands still each time":
		return nil, standStill(r)
	}
	pause := time.Duration(0)
	if f.fault == "loaded" {
		pause = uploadPatience - 2*time.Second
	}
	data, err := readSlowly(r.Body, pause)
	if err != nil {
		return nil, err
	}
	if f.puts == 1 && f.fault == "token" {
		return reply(401, nil)
	}
	f.data[image["id"].(string)] = string(data)
	image["status"] = "active"
	if f.puts == 1 && f.fault == "lost data" {
		return nil, errReset
	}
	if f.puts == 1 && f.fault == "slow" {
		image["status"], f.stored = "saving", time.Now().Add(30*time.Second)
		return nil, context.DeadlineExceeded
	}
	return reply(204, nil)
}

// standStill takes a MiB, and then a byte now and then until the request is given up.
func standStill(r *http.Request) error {
	_, _ = io.CopyN(io.Discard, r.Body, 1<<20)
	for range 360 {
		if r.Context().Err() != nil {
			return r.Context().Err()
		}
		_, _ = io.CopyN(io.Discard, r.Body, 1)
		time.Sleep(10 * time.Second)
	}
	return errors.New("nobody has given up for an hour")
}

// readSlowly pauses after each MiB.
func readSlowly(from io.Reader, pause time.Duration) (data []byte, err error) {
	for {
		part, err := io.ReadAll(io.LimitReader(from, 1<<20))
		if data = append(data, part...); err != nil || len(part) == 0 {
			return data, err
		}
		time.Sleep(pause)
	}
}

func imageOf(data string) Image {
	return Image{Path: "/images/own.raw", File: strings.NewReader(data), Size: int64(len(data)), Format: "raw"}
}

// An upload survives what glance survives. There is one image in the end, with all of the file.
func TestUploads(t *testing.T) {
	for name, tt := range map[string]struct {
		fault       string
		posts, puts int
		want        string // "" is no error
		unsure      bool   // about what glance has got
	}{
		"all is well":                    {"", 1, 1, "", false},
		"the answer about it is lost":    {"lost image", 1, 1, "", false},
		"glance is being started":        {"away", 2, 2, "", false},
		"glance is killed while it goes": {"killed", 2, 2, "", false},
		"the last answer is lost":        {"lost data", 1, 1, "", true},
		"glance takes long to store it":  {"slow", 1, 1, "", true},
		"the token expires":              {"token", 1, 2, "", false},
		"glance is full":                 {"full", 1, 1, "HTTP status 413", false},
		"glance is slow":                 {"loaded", 1, 1, "", false},
		"glance stands still":            {"stands still", 2, 2, "", false},
		"glance always stands still": {"stands still each time", 3, 3,
			"OpenStack: upload /images/own.raw to glance: glance took nearly nothing for 1m0s (after 1 of 3 MiB)", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				whole := strings.Repeat("an image", 3<<17)
				f := &faultyGlance{fault: tt.fault, data: map[string]string{}}
				g := glance{serviceOf(f)}
				g.api.ReauthFunc = func(context.Context) error { return nil }
				id, sum, err := g.upload(t.Context(), "m", imageOf(whole))
				if f.posts != tt.posts || f.puts != tt.puts || len(f.images) != 1 {
					t.Errorf("%d images made, %d times sent; there are %v", f.posts, f.puts, f.images)
				}
				if tt.want != "" {
					if err == nil || !strings.Contains(err.Error(), tt.want) {
						t.Error(err)
					}
					return
				}
				if known, _ := digestOf(t.Context(), imageOf(whole)); sum != known && (sum != "" || !tt.unsure) {
					t.Errorf("the digest of what was sent is %q", sum)
				}
				if err != nil || id != f.images[0]["id"] || f.images[0]["status"] != "active" || f.data[id] != whole {
					t.Errorf("image %q, %v; there are %v with %d bytes", id, err, f.images, len(f.data[id]))
				}
			})
		})
	}
}

// stuckFile is on a file server that answers no more.
type stuckFile struct{ answers chan struct{} }

func (s stuckFile) ReadAt([]byte, int64) (int, error) {
	<-s.answers
	return 0, io.EOF
}

// If it is the file that stands still, nobody looks for the fault in glance.
func TestAnUploadOfAFileThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := stuckFile{make(chan struct{})}
		defer close(file.answers)
		data := newBody(Image{File: file, Size: 8})
		ctx, stop := context.WithCancelCause(t.Context())
		go func() { _, _ = io.ReadAll(data) }()
		data.watch(ctx, stop)
		if err := data.explain(context.Cause(ctx)); err == nil || err.Error() != "the file could not be read for 1m0s (after 0 of 1 MiB)" {
			t.Error(err)
		}
	})
}
