package openstack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gophercloud/gophercloud/v2"
)

// A faultyNova is nova as far as servers go, with faults that a real one has seldom. Its
// answers have the form of the recorded ones.
type faultyNova struct {
	mu          sync.Mutex
	servers     []map[string]any
	losePosts   int // so many answers to POST are lost, after it was carried out
	loseDeletes int // so many DELETEs are forgotten, after 204
	loseInside  int // so many servers end in state ERROR, since a service of nova's has died
	posts       int
	slow        time.Duration // it carries a POST out so much later, whether or not anybody still waits
	slowDelete  time.Duration // each DELETE takes so long
	locked      string        // id of a server that it refuses to delete
}

func (f *faultyNova) client() nova { return nova{serviceOf(f)} }

// serviceOf is a client of the project "site" for a service that is a fake.
func serviceOf(fake http.RoundTripper) service {
	provider := &gophercloud.ProviderClient{HTTPClient: http.Client{Transport: fake}}
	return service{api: &gophercloud.ServiceClient{ProviderClient: provider, Endpoint: "http://cloud/"}, project: "site"}
}

// A lossy network has requests carried out, and loses the answers to the first ones.
type lossy struct {
	lose   int // so many answers to POST
	answer func(*http.Request) (*http.Response, error)
}

func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := l.answer(r)
	if r.Method == http.MethodPost && l.lose > 0 && err == nil {
		l.lose--
		return nil, &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}
	}
	if answer != nil {
		answer.Request = r
	}
	return answer, err
}

func (f *faultyNova) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := f.inTime(r)
	if answer != nil {
		answer.Request = r
	}
	return answer, err
}

func (f *faultyNova) inTime(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodDelete {
		time.Sleep(f.slowDelete)
	}
	if r.Method != http.MethodPost || f.slow == 0 {
		return f.answer(r)
	}
	body, _ := io.ReadAll(r.Body)
	sent := r.Clone(context.WithoutCancel(r.Context()))
	sent.Body = io.NopCloser(bytes.NewReader(body))
	began := time.Now()
	select {
	case <-time.After(f.slow):
		return f.answer(sent)
	case <-r.Context().Done():
		time.AfterFunc(f.slow-time.Since(began), func() {
			if answer, err := f.answer(sent); err == nil {
				answer.Body.Close()
			}
		})
		return nil, r.Context().Err()
	}
}

func (f *faultyNova) answer(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case r.Method == http.MethodPost:
		return f.post(r)
	case r.Method == http.MethodDelete:
		return f.remove(path.Base(r.URL.Path))
	case strings.HasPrefix(r.URL.Path, "/servers/") && path.Base(r.URL.Path) != "detail":
		return reply(200, map[string]any{"server": map[string]any{"status": "ERROR", "fault": map[string]any{"code": 500, "message": "MessagingTimeout"}}})
	case strings.Contains(r.URL.RawQuery, "marker"):
		return reply(200, map[string]any{"servers": []any{}})
	}
	return reply(200, map[string]any{"servers": append([]map[string]any{}, f.servers...)})
}

func (f *faultyNova) post(r *http.Request) (*http.Response, error) {
	var body struct{ Server map[string]any }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return nil, err
	}
	f.posts++
	id, status := strconv.Itoa(f.posts), "BUILD"
	if f.loseInside >= f.posts {
		status = "ERROR"
	}
	f.servers = append(f.servers, map[string]any{"id": id, "name": body.Server["name"], "status": status, "metadata": body.Server["metadata"]})
	if f.losePosts > 0 {
		f.losePosts--
		return nil, &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}
	}
	return reply(202, map[string]any{"server": map[string]any{"id": id}})
}

func (f *faultyNova) remove(id string) (*http.Response, error) {
	switch {
	case id == f.locked:
		return reply(409, map[string]any{"conflictingRequest": map[string]any{"code": 409, "message": "Instance " + id + " is locked"}})
	case f.loseDeletes > 0:
		f.loseDeletes--
	default:
		f.servers = slices.DeleteFunc(f.servers, func(s map[string]any) bool { return s["id"] == id })
	}
	return reply(204, nil)
}

func reply(status int, body any) (*http.Response, error) {
	text, err := json.Marshal(body)
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(text))),
	}, err
}

func TestALostAnswerMakesNoSecondServer(t *testing.T) {
	for _, lost := range []int{0, 1} { // without a lost answer, the same fake counts one request, too
		synctest.Test(t, func(t *testing.T) {
			f := &faultyNova{losePosts: lost}
			if err := f.client().createServer(t.Context(), "m", wanted{Server: Server{Name: "vm0", Host: "n1"}}); err != nil {
				t.Error(err)
			}
			if f.posts != 1 || len(f.servers) != 1 {
				t.Errorf("%d answers lost: %d requests, servers %v", lost, f.posts, f.servers)
			}
		})
	}
}

// nova takes longer for its answer than anybody waits, and has begun to make the server: it is not asked for a second one.
func TestALateAnswerMakesNoSecondServer(t *testing.T) {
	for _, slow := range []time.Duration{answerPatience / 2, answerPatience + 15*time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := &faultyNova{slow: slow}
			if err := f.client().createServer(t.Context(), "m", wanted{Server: Server{Name: "vm0", Host: "n1"}}); err != nil {
				t.Error(err)
			}
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if f.posts != 1 || len(f.servers) != 1 {
				t.Errorf("nova takes %v: %d requests, servers %v", slow, f.posts, f.servers)
			}
		})
	}
}

// nova never answers: the error says so after a while, and nova was asked once.
func TestAnAnswerThatNeverComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faultyNova{slow: time.Hour}
		began := time.Now()
		err := f.client().createServer(t.Context(), "m", wanted{Server: Server{Name: "vm0", Host: "n1"}})
		if err == nil || !strings.Contains(err.Error(), "create server vm0 on host n1") || !isLate(err) {
			t.Error(err)
		}
		if took := time.Since(began); took < outage || took > outage+mostPause {
			t.Errorf("it took %v", took)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if f.posts != 1 {
			t.Errorf("%d requests", f.posts)
		}
	})
}

// A request that no cloud has got can be made again.
func TestIsLate(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		late bool
	}{
		"no answer in time":        {context.DeadlineExceeded, true},
		"a proxy has waited":       {gophercloud.ErrUnexpectedResponseCode{Actual: http.StatusGatewayTimeout}, true},
		"nobody takes connections": {&net.OpError{Op: "dial", Err: context.DeadlineExceeded}, false},
		"nova-api was killed":      {&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, false},
		"nova is being started":    {gophercloud.ErrUnexpectedResponseCode{Actual: http.StatusServiceUnavailable}, false},
		"all is well":              {nil, false},
	} {
		if isLate(tt.err) != tt.late {
			t.Errorf("%s: %v", name, !tt.late)
		}
	}
}

// A job that is cancelled while nova makes its server leaves no server: the request is not given
// up, as nova could carry it out after Delete has looked.
func TestACancelledRequestIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faultyNova{slow: 5 * time.Second}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errors.New("scancel")) })
		n := f.client()
		_ = n.createServer(ctx, "m", wanted{Server: Server{Name: "vm0", Host: "n1"}})
		if err := n.deleteServers(t.Context(), "m"); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if f.posts != 1 || len(f.servers) != 0 {
			t.Errorf("%d servers were asked for; %v are left", f.posts, f.servers)
		}
		err := n.createServer(ctx, "m", wanted{Server: Server{Name: "vm1", Host: "n1"}})
		if err == nil || !strings.Contains(err.Error(), "scancel") || f.posts != 1 {
			t.Errorf("%d servers were asked for, one of a job that had been cancelled: %v", f.posts, err)
		}
	})
}

// A server that nova has lost, since its scheduler died with the request, is asked for once more, though nova loses its deletion, too.
func TestAServerThatNovaLosesIsAskedForAgain(t *testing.T) {
	for lost, want := range map[int]string{1: "", 2: "vm0: MessagingTimeout (nova was asked for it twice)"} {
		synctest.Test(t, func(t *testing.T) {
			f := &faultyNova{loseInside: lost, loseDeletes: 1}
			c := &Cloud{label: "l", nova: f.client()}
			if err := c.requestServer(t.Context(), c.mark("7.0"), wanted{Server: Server{Name: namePrefix("7.0") + "vm0", Host: "n1"}}); err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(30*time.Second, func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				for _, s := range f.servers {
					if s["status"] == "BUILD" {
						s["status"] = "ACTIVE"
					}
				}
			})
			ctx, cancel := withTimeout(t, time.Minute)
			defer cancel()
			err := c.Await(ctx, "7.0", 1)
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("lost %d times: %v, want %q", lost, err, want)
			}
			if f.posts != 2 || len(f.servers) != 1 {
				t.Errorf("lost %d times: %d servers were asked for, %v are there", lost, f.posts, f.servers)
			}
		})
	}
}

func TestWhichFaultsPass(t *testing.T) {
	for fault, want := range map[string]bool{
		"MessagingTimeout": true,
		"Unable to establish connection to http://10.77.0.10:9696/v2.0/ports/8ae9850e: HTTPConnectionPool(host='10.77.0.10', port=9696)": true,
		"No valid host was found. There are not enough hosts available.":                                                                 false,
	} {
		if isPassing(fault) != want {
			t.Errorf("%q passes: %t", fault, !want)
		}
	}
}

func TestADeletingThatIsLostIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faultyNova{loseDeletes: 2, servers: []map[string]any{{"id": "1", "name": "vm0", "status": "ACTIVE", "metadata": map[string]string{"slurm-v": "m"}}}}
		began := time.Now()
		ctx, cancel := withTimeout(t, 5*time.Minute)
		defer cancel()
		if err := f.client().deleteServers(ctx, "m"); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < 2*askAgain || took > 3*askAgain {
			t.Errorf("it took %v", took)
		}
	})
}

// nova refuses to delete one server of a large job, and takes a second for each of the others. They go within the two
// minutes that Slurm gives to a job's end.
func TestARefusalKeepsNoOtherServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faultyNova{slowDelete: time.Second, locked: "7"}
		for i := range 600 {
			f.servers = append(f.servers, map[string]any{
				"id": strconv.Itoa(i), "name": "vm" + strconv.Itoa(i), "status": "ACTIVE", "metadata": map[string]string{"slurm-v": "m"},
			})
		}
		began := time.Now()
		ctx, cancel := withTimeout(t, 5*time.Minute)
		defer cancel()
		err := f.client().deleteServers(ctx, "m")
		if err == nil || !strings.Contains(err.Error(), "server vm7: Instance 7 is locked (HTTP status 409)") {
			t.Error(err)
		}
		if len(f.servers) != 1 || f.servers[0]["id"] != "7" {
			t.Errorf("%d servers are left", len(f.servers))
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

// The same is so for ports and all else of a job.
func TestARefusalKeepsNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var removed atomic.Int32
		began := time.Now()
		err := removeAll(t.Context(), func() ([]int, error) { return make([]int, 600), nil }, func(int) error {
			time.Sleep(time.Second)
			if removed.Add(1) == 7 {
				return errors.New("it is in use")
			}
			return nil
		})
		if err == nil || err.Error() != "it is in use" || removed.Load() != 600 {
			t.Errorf("%d removed: %v", removed.Load(), err)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

// A server that nova never deletes is named in the error, after a while.
func TestADeletingThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faultyNova{loseDeletes: 1000, servers: []map[string]any{{"id": "1", "name": "vm0", "status": "ACTIVE", "metadata": map[string]string{"slurm-v": "m"}}}}
		began := time.Now()
		ctx, cancel := withTimeout(t, time.Hour)
		defer cancel()
		err := f.client().deleteServers(ctx, "m")
		if err == nil || !strings.Contains(err.Error(), "nova still has vm0 (ACTIVE)") {
			t.Error(err)
		}
		if took := time.Since(began); took < outage || took > outage+askAgain {
			t.Errorf("it took %v", took)
		}
	})
}

func withTimeout(t *testing.T, limit time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeoutCause(t.Context(), limit, errors.New("the test waits no longer"))
}

// Credentials that others can read, that name another cloud, or that have no secret are refused.
func TestOpenCredentials(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clouds.yaml")
	const noSecret = "neither application_credential_secret nor password"
	with := func(auth string) string { return "clouds: {slurmv: {auth: {auth_url: \"http://site\", " + auth + "}}}" }
	for name, tt := range map[string]struct {
		mode  os.FileMode
		text  string
		cloud string
		want  string // "" is taken
	}{
		"good":                    {0o600, replayed, "slurmv", ""},
		"a user's":                {0o600, with("username: u, password: p"), "slurmv", ""},
		"open":                    {0o644, replayed, "slurmv", "clouds.yaml"},
		"another":                 {0o600, replayed, "other", `"other"`},
		"a token":                 {0o600, with("token: t"), "slurmv", noSecret},
		"the secret is elsewhere": {0o600, with("application_credential_id: i"), "slurmv", noSecret},
	} {
		t.Run(name, func(t *testing.T) {
			_ = os.Remove(path)
			if err := os.WriteFile(path, []byte(tt.text), tt.mode); err != nil {
				t.Fatal(err)
			}
			_, err := OpenNames(Settings{CloudsFile: path, Cloud: tt.cloud, Label: "test"})
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Error(err)
			}
			if HasPassword(Settings{CloudsFile: path, Cloud: tt.cloud}) != (name == "a user's") {
				t.Error("it has a password, or it does not")
			}
		})
	}
}

// A cloud that cannot be reached as clouds.yaml has it is no cloud that comes back: the error says at once what to correct.
func TestWhatNoWaitingMends(t *testing.T) {
	secure, plain := httptest.NewTLSServer(http.NotFoundHandler()), httptest.NewServer(http.NotFoundHandler())
	defer secure.Close()
	defer plain.Close()
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	for name, tt := range map[string]struct {
		url    string
		lookup error // instead of asking name servers
		want   string
	}{
		"a certificate of an unknown authority": {secure.URL, nil, "name the CA of that server as cacert of the cloud in clouds.yaml (backend.clouds_file)"},
		"a server without TLS":                  {strings.Replace(plain.URL, "http", "https", 1), nil, "correct auth_url of the cloud in clouds.yaml"},
		"a host that nobody knows": {"https://keystone.invalid:5000", &net.DNSError{Err: "no such host", Name: "keystone.invalid", IsNotFound: true},
			"correct auth_url of the cloud in clouds.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			s := Settings{Cloud: "slurmv", Label: "test", CloudsFile: cloudsFile(t, strings.Replace(replayed, "http://10.77.0.10:5000", tt.url, 1))}
			if tt.lookup != nil {
				s.wire = func(http.RoundTripper) http.RoundTripper { return unknown{tt.lookup} }
			}
			ctx, cancel := withTimeout(t, 5*time.Second)
			defer cancel()
			_, err := Open(ctx, s)
			if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "log in at "+tt.url) || !strings.Contains(err.Error(), tt.want) {
				t.Error(err)
			}
		})
	}
}

// unknown is a network in which no host has a name.
type unknown struct{ lookup error }

func (u unknown) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Err: u.lookup}
}
