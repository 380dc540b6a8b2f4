package manager

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/manager/managertest"
)

// play starts a fabric manager, and returns the options of its clients.
func play(t *testing.T) (*managertest.Manager, Options) {
	t.Helper()
	m := managertest.New()
	m.StartTLS()
	t.Cleanup(m.Close)
	dir := t.TempDir()
	return m, Options{
		URL: m.URL + "/", TokenFile: file(t, dir, "token", "secret\n", 0o600), CAFile: file(t, dir, "ca.pem", string(m.Authority()), 0o644),
		Timeout: 10 * time.Second, Addrs: 23, MinNodes: 64,
	}
}

func file(t *testing.T, dir, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func connect(t *testing.T, o Options) *Client {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestStepsOfASession(t *testing.T) {
	m, o := play(t)
	c := connect(t, o)
	if _, err := c.Reserve(t.Context(), "deep-4217"); err != nil {
		t.Fatal(err)
	}
	wantSteps(t, c)
	m.Change(func() { m.Steps["deep-4217"] = map[string][]int{"0": {1, 2}, "3": {3}, "tree.1": {4}} })
	wantSteps(t, c, "0", "3", "tree.1")
	for range 2 { // the second finds that it has none
		if err := c.ReleaseStep(t.Context(), "deep-4217", "3"); err != nil {
			t.Error(err)
		}
	}
	wantSteps(t, c, "0", "tree.1")
	m.Change(func() { delete(m.Sessions, "deep-4217") }) // the job has ended meanwhile
	wantSteps(t, c)
	if err := c.ReleaseStep(t.Context(), "deep-4217", "0"); err != nil {
		t.Error(err)
	}
}

func wantSteps(t *testing.T, c *Client, want ...string) {
	t.Helper()
	got, err := c.Steps(t.Context(), "deep-4217")
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v, steps differ (-want +got):\n%s", err, diff)
	}
}

func TestStepsThatFail(t *testing.T) {
	m, o := play(t)
	o.Timeout = 200 * time.Millisecond
	c := connect(t, o)
	for what, trouble := range map[string]http.HandlerFunc{
		"the fabric manager answers 500 Internal Server Error: no":       say(500, `{"detail":"no"}`),
		"the fabric manager " + m.URL + " has not answered within 200ms": hang,
	} {
		m.Change(func() { m.Trouble = trouble })
		if got, err := c.Steps(t.Context(), "deep-1"); got != nil || err == nil || err.Error() != "ask which steps have multicast addresses of deep-1: "+what {
			t.Errorf("%v, error = %v", got, err)
		}
		if err := c.ReleaseStep(t.Context(), "deep-1", "3"); err == nil || err.Error() != "release the multicast addresses of step 3 in deep-1: "+what {
			t.Errorf("error = %v", err)
		}
	}
}

func TestASession(t *testing.T) {
	m, o := play(t)
	c := connect(t, o)
	want := &fabric.Collectives{Session: "deep-4217", Token: "token-deep-4217", URL: m.URL, Addrs: 23, MinNodes: 64}
	for range 2 { // the second finds it
		got, err := c.Reserve(t.Context(), "deep-4217")
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Fatalf("error %v, collectives differ (-want +got):\n%s", err, diff)
		}
	}
	wantSessions(t, c, "deep-4217")
	m.Change(func() {
		if m.Sessions["deep-4217"] != 23 {
			t.Errorf("mcastLimit is %v", m.Sessions["deep-4217"])
		}
	})
	for range 2 { // the second finds that it is gone
		if err := c.Release(t.Context(), "deep-4217"); err != nil {
			t.Error(err)
		}
	}
	wantSessions(t, c)
	const session = " /fabric/collectives/jobs/deep-4217"
	asked := []string{
		"GET" + session, "POST /fabric/collectives/jobs", "GET" + session, "GET /fabric/collectives/jobs/",
		"DELETE" + session, "DELETE" + session, "GET /fabric/collectives/jobs/",
	}
	m.Change(func() {
		if diff := cmp.Diff(asked, m.Requests); diff != "" {
			t.Errorf("requests differ (-want +got):\n%s", diff)
		}
	})
}

func wantSessions(t *testing.T, c *Client, want ...string) {
	t.Helper()
	got, err := c.List(t.Context())
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v, sessions differ (-want +got):\n%s", err, diff)
	}
}

func TestTokens(t *testing.T) {
	m, o := play(t)
	basic := "Basic Y3hpOnBhc3M6d29yZA==" // cxi:pass:word
	tests := map[string]struct {
		text  string
		mode  os.FileMode
		wants string
		err   string
	}{
		"a bearer token":               {"secret\n", 0o600, "Bearer secret", ""},
		"a user and a password":        {"cxi:pass:word\n", 0o640, basic, ""},
		"another token":                {"wrong\n", 0o600, "Bearer secret", "list the sessions of the fabric manager: the fabric manager answers 401 Unauthorized: who are you?; look at token_file in [fabric.collectives] of slurmv.toml"},
		"no token":                     {"\n", 0o600, "Bearer ", "list the sessions of the fabric manager: token for the fabric manager: FILE does not have one line with a token or USER:PASSWORD"},
		"two lines":                    {"cxi\nsecret\n", 0o600, "Bearer secret", "list the sessions of the fabric manager: token for the fabric manager: FILE does not have one line with a token or USER:PASSWORD"},
		"a token that everybody reads": {"secret\n", 0o644, "Bearer secret", "list the sessions of the fabric manager: token for the fabric manager: FILE has the mode 0644, with which every user can open it: "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := o
			o.TokenFile = file(t, t.TempDir(), "token", tt.text, tt.mode)
			m.Token = tt.wants
			_, err := connect(t, o).List(t.Context())
			want := strings.ReplaceAll(tt.err, "FILE", o.TokenFile)
			if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
				t.Errorf("error = %v, want %s", err, want)
			}
		})
	}
}

// A site renews the token in its file.
func TestTheTokenIsReadAtEachRequest(t *testing.T) {
	m, o := play(t)
	c := connect(t, o)
	wantSessions(t, c)
	m.Change(func() { m.Token = "Bearer renewed" })
	if err := c.Release(t.Context(), "deep-1"); err == nil {
		t.Error("the old token still opens")
	}
	file(t, filepath.Dir(o.TokenFile), filepath.Base(o.TokenFile), "renewed", 0o600)
	wantSessions(t, c)
}

func TestWhomTheTokenIsNotShownTo(t *testing.T) {
	m, o := play(t)
	other, _ := play(t)
	m.Trouble = func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}
	t.Setenv("HTTPS_PROXY", other.URL)
	err := connect(t, o).Release(t.Context(), "deep-1")
	if err == nil || !strings.Contains(err.Error(), "the fabric manager answers 307 Temporary Redirect") || len(m.Requests) != 1 || len(other.Requests) != 0 {
		t.Errorf("error %v, the fabric manager was asked %v, another server %v", err, m.Requests, other.Requests)
	}
	stranger := o
	stranger.URL, stranger.CAFile = other.URL, ""
	err = connect(t, stranger).Release(t.Context(), "deep-1")
	if err == nil || !strings.Contains(err.Error(), "certificate") || !strings.HasSuffix(err.Error(), "; look at ca_file in [fabric.collectives] of slurmv.toml") || len(other.Requests) != 0 {
		t.Errorf("error %v, the stranger was asked %v", err, other.Requests)
	}
}

// hang never answers. It ends when the client has gone, which the server notices once it has read
// the request's body. If it then just returned, that would be an answer, which a client on a busy
// machine may still get.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	select {
	case <-r.Context().Done():
	case <-time.After(time.Minute):
	}
	panic(http.ErrAbortHandler)
}

func say(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, text)
	}
}

// cut ends the connection within the answer.
func cut(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	w.WriteHeader(http.StatusOK)
	io.WriteString(w, `{"sessionToken":`)
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// The job runs all the same.
func TestReserveThatFails(t *testing.T) {
	const reserve = "reserve 23 multicast addresses for deep-4217: "
	tests := map[string]struct {
		trouble http.HandlerFunc
		err     string
	}{
		"an error of the fabric manager": {say(500, `{"detail":"no multicast\n addresses left"}`), "the fabric manager answers 500 Internal Server Error: no multicast addresses left"},
		"an error of a proxy":            {say(502, "<html>"), "the fabric manager answers 502 Bad Gateway"},
		"a long error":                   {say(500, `{"detail":"`+strings.Repeat("x", 300)+`"}`), "the fabric manager answers 500 Internal Server Error: " + strings.Repeat("x", 200) + ""},
		"not allowed":                    {say(403, ""), "the fabric manager answers 403 Forbidden; look at token_file"},
		"nothing that it knows":          {say(404, ""), "the fabric manager answers 404 Not Found"},
		"no JSON":                        {say(200, "<html>"), "the answer of URL is not understood: invalid character"},
		"no token":                       {say(200, `{"jobID":"deep-4217"}`), "the answer of URL has no sessionToken"},
		"an answer without end":          {endless, "the answer of URL is larger than 16 MiB"},
		"a connection that is cut":       {cut, "read the answer of URL: unexpected EOF"},
		"a connection that ends":         {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, `Get "URL/fabric/collectives/jobs/deep-4217": EOF`},
		"no answer":                      {hang, "the fabric manager URL has not answered within 200ms"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m, o := play(t)
			m.Trouble = tt.trouble
			if strings.Contains(tt.err, "200ms") {
				o.Timeout = 200 * time.Millisecond
			}
			began := time.Now()
			got, err := connect(t, o).Reserve(t.Context(), "deep-4217")
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("it took %v", took)
			}
			want := reserve + strings.ReplaceAll(tt.err, "URL", m.URL)
			if got != nil || err == nil || !strings.HasPrefix(err.Error(), want) || errors.Is(err, context.DeadlineExceeded) != (name == "no answer") {
				t.Errorf("%v, error = %v, want %s", got, err, want)
			}
		})
	}
}

func endless(w http.ResponseWriter, _ *http.Request) {
	text := []byte(strings.Repeat(" ", 1<<20))
	for range 20 {
		w.Write(text)
	}
}

func TestAFabricManagerThatIsGone(t *testing.T) {
	m, o := play(t)
	m.Close()
	if _, err := connect(t, o).Reserve(t.Context(), "deep-1"); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("error = %v", err)
	}
	if err := connect(t, o).Release(t.Context(), "deep-1"); err == nil {
		t.Error("the session was released")
	}
}

func TestTheCallerCanGiveUp(t *testing.T) {
	m, o := play(t)
	m.Trouble = hang
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if err := connect(t, o).Release(ctx, "deep-1"); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
}

// A list that is not understood must not make all sessions look missing.
func TestListThatFails(t *testing.T) {
	m, o := play(t)
	for text, want := range map[string]string{
		`{}`:                      "the answer of URL has no documentLinks",
		`{"documentLinks":[""]}`:  `"" is no link to a session`,
		`{"documentLinks":["/"]}`: `"/" is no link to a session`,
		`{"documentLinks":[7]}`:   "the answer of URL is not understood: ",
		`[]`:                      "the answer of URL is not understood: ",
	} {
		m.Change(func() { m.Trouble = say(200, text) })
		got, err := connect(t, o).List(t.Context())
		want = "list the sessions of the fabric manager: " + strings.ReplaceAll(want, "URL", m.URL)
		if got != nil || err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, error = %v, want %s", text, got, err, want)
		}
	}
}

func TestNew(t *testing.T) {
	dir := t.TempDir()
	tests := map[string]struct {
		o   Options
		err string
	}{
		"without TLS":                 {Options{URL: "http://fm:8000"}, `fabric manager: "http://fm:8000" is not https://HOST:PORT`},
		"no host":                     {Options{URL: "https://"}, `fabric manager: "https:" is not https://HOST:PORT`},
		"a password in the URL":       {Options{URL: "https://cxi:x@fm"}, "fabric manager: the URL has a password: write it into token_file of [fabric.collectives], as USER:PASSWORD"},
		"authorities that are not":    {Options{URL: "https://fm", CAFile: filepath.Join(dir, "none")}, "fabric manager https://fm: open DIR/none: no such file or directory"},
		"authorities that are others": {Options{URL: "https://fm", CAFile: file(t, dir, "x", "x", 0o644)}, "fabric manager https://fm: DIR/x has no certificate in PEM format"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := New(tt.o); err == nil || err.Error() != strings.ReplaceAll(tt.err, "DIR", dir) {
				t.Errorf("error = %v, want %s", err, tt.err)
			}
		})
	}
}
