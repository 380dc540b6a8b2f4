package openstack

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
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
	stored      time.Time // when a slow glance has all of the image
}

func (f *faultyGlance) RoundTrip(r *http.Request) (answer *http.Response, err error) {
	switch r.Method {
	case http.MethodPost:
		answer, err = f.post()
	case http.MethodPut:
		answer, err = f.put(r)
	case http.MethodDelete:
		f.images = slices.DeleteFunc(f.images, func(i map[string]any) bool { return i["id"] == path.Base(r.URL.Path) })
		answer, err = reply(204, nil)
	default:
		if !f.stored.IsZero() && time.Now().After(f.stored) {
			f.images[0]["status"] = "active"
		}
		answer, err = reply(200, map[string]any{"images": f.images})
	}
	if answer != nil {
		answer.Request = r
	}
	return answer, err
}

var errReset = &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}

func (f *faultyGlance) post() (*http.Response, error) {
	f.posts++
	image := map[string]any{"id": strconv.Itoa(f.posts), "owner": "site", "status": "queued", "tags": []string{"m"}}
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
	}{
		"all is well":                    {"", 1, 1, ""},
		"the answer about it is lost":    {"lost image", 1, 1, ""},
		"glance is being started":        {"away", 2, 2, ""},
		"glance is killed while it goes": {"killed", 2, 2, ""},
		"the last answer is lost":        {"lost data", 1, 1, ""},
		"glance takes long to store it":  {"slow", 1, 1, ""},
		"the token expires":              {"token", 1, 2, ""},
		"glance is full":                 {"full", 1, 1, "HTTP status 413"},
		"glance is slow":                 {"loaded", 1, 1, ""},
		"glance stands still":            {"stands still", 2, 2, ""},
		"glance always stands still": {"stands still each time", 3, 3,
			"OpenStack: upload /images/own.raw to glance: glance took nearly nothing for 1m0s (after 1 of 3 MiB)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				whole := strings.Repeat("an image", 3<<17)
				f := &faultyGlance{fault: tt.fault, data: map[string]string{}}
				g := glance{serviceOf(f)}
				g.api.ReauthFunc = func(context.Context) error { return nil }
				id, err := g.upload(t.Context(), "m", imageOf(whole))
				if f.posts != tt.posts || f.puts != tt.puts || len(f.images) != 1 {
					t.Errorf("%d images made, %d times sent; there are %v", f.posts, f.puts, f.images)
				}
				if tt.want != "" {
					if err == nil || !strings.Contains(err.Error(), tt.want) {
						t.Error(err)
					}
					return
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
