package ufm

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/fabric"
)

// A double is a UFM with its partitions.
type double struct {
	*httptest.Server
	mu      sync.Mutex
	members map[string]map[string]bool // index0 by the GUID's digits, by P_Key
	older   bool                       // it has the requests of older versions only
	newer   bool                       // it has those of newer versions only
	away    func() bool                // a proxy answers in its place
	asked   []string
	auth    string // the last request's
}

func newDouble(t *testing.T) *double {
	t.Helper()
	d := &double{members: map[string]map[string]bool{}}
	d.Server = httptest.NewTLSServer(d)
	t.Cleanup(d.Close)
	return d
}

// change changes what UFM is like. A handler may still be at work although its answer has come.
func (d *double) change(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// membersOf returns a copy of the members of a P_Key.
func (d *double) membersOf(pkey string) (members map[string]bool) {
	d.change(func() { members = maps.Clone(d.members[pkey]) })
	return members
}

const token = "Zr5UDr1kL2P9"

func (d *double) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, r.Method+" "+r.URL.Path)
	d.auth = r.Header.Get("Authorization")
	if d.away != nil && d.away() {
		http.NotFound(w, r)
		return
	}
	path, v3 := strings.CutPrefix(r.URL.Path, "/ufmRestV3")
	if user, password, _ := r.BasicAuth(); user == "admin" && password == "secret" {
		path, v3 = strings.CutPrefix(r.URL.Path, "/ufmRest")
	} else if d.auth != "Basic "+token {
		v3 = false
	}
	if !v3 {
		http.Error(w, `{"error": "Authentication\n required"}`, http.StatusUnauthorized)
		return
	}
	d.serve(w, r, path)
}

func (d *double) serve(w http.ResponseWriter, r *http.Request, path string) {
	var body struct {
		PKey       string
		GUIDs      []string
		Index0     bool
		Membership string
		IPOverIB   bool `json:"ip_over_ib"`
	}
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	key, rest, _ := strings.Cut(strings.TrimPrefix(path, "/resources/pkeys/"), "/guids/")
	switch {
	case path == "/app/ufm_version":
		fmt.Fprint(w, `{"ufm_release_version": "6.19.3"}`)
	case r.Method == http.MethodPost && path == "/resources/pkeys/" && body.Membership == "full" && body.IPOverIB:
		for _, g := range body.GUIDs {
			if d.members[body.PKey] == nil {
				d.members[body.PKey] = map[string]bool{}
			}
			d.members[body.PKey][g] = body.Index0
		}
	case r.Method == http.MethodPost && path == "/actions/remove_guids_from_pkey" && !d.newer:
		d.remove(w, body.PKey, body.GUIDs)
	case r.Method == http.MethodDelete && !d.older:
		d.remove(w, key, strings.Split(rest, ","))
	case r.Method == http.MethodGet && r.URL.Query().Get("guids_data") == "true":
		d.list(w, key)
	default:
		http.NotFound(w, r)
	}
}

func (d *double) remove(w http.ResponseWriter, pkey string, guids []string) {
	if d.members[pkey] == nil {
		http.Error(w, "no such PKey", http.StatusNotFound)
		return
	}
	maps.DeleteFunc(d.members[pkey], func(g string, _ bool) bool { return slices.Contains(guids, g) })
}

func (d *double) list(w http.ResponseWriter, pkey string) {
	var guids []map[string]any
	for g, first := range d.members[pkey] {
		guids = append(guids, map[string]any{"guid": g, "membership": "full", "index0": first})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"partition": "api_pkey_" + pkey, "ip_over_ib": true, "guids": guids})
}

func file(t *testing.T, mode os.FileMode, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	return path
}

// options are those of a client that d serves.
func (d *double) options(t *testing.T) Options {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: d.Certificate().Raw})
	return Options{URL: d.URL, TokenFile: file(t, 0o640, token+"\n"), CAFile: file(t, 0o644, string(ca))}
}

func (d *double) client(t *testing.T) *Client {
	t.Helper()
	c, err := New(d.options(t))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var (
	vfPorts  = []fabric.GUID{fabric.PortGUID(7, 0, 0), fabric.PortGUID(7, 1, 0)}
	nodePort = fabric.GUID(0x7cfe900300cb7400)
	all      = append(slices.Clone(vfPorts), nodePort)
)

func TestAJobsPartition(t *testing.T) {
	for name, which := range map[string]func(*double){
		"all requests": func(*double) {}, "those of older versions": func(d *double) { d.older = true }, "those of newer versions": func(d *double) { d.newer = true },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDouble(t)
			which(d)
			testAJobsPartition(t, d.client(t), d)
		})
	}
}

func testAJobsPartition(t *testing.T, c *Client, d *double) {
	if version, err := c.Validate(t.Context()); err != nil || version != "6.19.3" {
		t.Errorf("version %s, %v", version, err)
	}
	for range 2 {
		if err := errors.Join(c.Add(t.Context(), 0x1004, all), c.Confirm(t.Context(), 0x1004, all)); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]bool{"0250000000700000": true, "0250000000700040": true, "7cfe900300cb7400": false}
	if got := d.membersOf("0x1004"); !maps.Equal(got, want) {
		t.Errorf("the members are %v, want %v", got, want)
	}
	mustNotConfirm(t, c.ConfirmGone, all)
	if err := c.Remove(t.Context(), 0x1004, vfPorts[:1]); err != nil {
		t.Fatal(err)
	}
	mustNotConfirm(t, c.Confirm, all)
	for range 2 {
		if err := errors.Join(c.Remove(t.Context(), 0x1004, all), c.ConfirmGone(t.Context(), 0x1004, all)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Remove(t.Context(), 0x1005, all); err != nil {
		t.Errorf("remove ports from a P_Key that is not there: %v", err)
	}
	if members, err := c.Members(t.Context(), 0x1005); err != nil || members != nil {
		t.Errorf("its members are %v, %v", members, err)
	}
}

func mustNotConfirm(t *testing.T, confirm func(context.Context, fabric.Tag, []fabric.GUID) error, guids []fabric.GUID) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 500*time.Millisecond, errors.New("enough"))
	defer cancel()
	if err := confirm(ctx, 0x1004, guids); err == nil || !strings.Contains(err.Error(), "the P_Key 0x9004") || !strings.Contains(err.Error(), "enough") {
		t.Errorf("error = %v", err)
	}
}

func TestLimitedMembersAreNotConfirmed(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"guids": [{"guid": "0250000000700000", "membership": "limited"}, {"guid": "0x0250000000700040", "membership": "full"}]}`)
	}))
	defer server.Close()
	c := (&double{Server: server}).client(t)
	mustNotConfirm(t, c.Confirm, vfPorts)
	mustNotConfirm(t, c.ConfirmGone, vfPorts[:1])
	if err := c.Confirm(t.Context(), 0x1004, vfPorts[1:]); err != nil {
		t.Error(err)
	}
}

// A proxy in front of UFM says "not found" while UFM restarts. The ports still have the P_Key.
func TestAProxyThatFindsNothing(t *testing.T) {
	d := newDouble(t)
	c := d.client(t)
	if err := c.Add(t.Context(), 0x1004, vfPorts); err != nil {
		t.Fatal(err)
	}
	d.change(func() { d.away = func() bool { return true } })
	if members, err := c.Members(t.Context(), 0x1004); err == nil || !strings.Contains(err.Error(), "UFM is away") {
		t.Errorf("the members are %v, %v", members, err)
	}
	if err := c.Remove(t.Context(), 0x1004, vfPorts); err == nil {
		t.Error("the P_Key is removed, and UFM does not know")
	}
	mustNotConfirm(t, c.ConfirmGone, vfPorts)
	d.change(func() { d.asked, d.away = nil, func() bool { return len(d.asked) == 1 } }) // it comes back after the first answer
	if members, err := c.Members(t.Context(), 0x1004); err != nil || len(members) != 2 {
		t.Errorf("the members are %v, %v", members, err)
	}
}

func TestOtherMembersDoNotStay(t *testing.T) {
	d := newDouble(t)
	c := d.client(t)
	for range 2 { // twice
		if err := errors.Join(c.Add(t.Context(), 0x1004, []fabric.GUID{fabric.PortGUID(6, 0, 0)}), c.Set(t.Context(), 0x1004, vfPorts)); err != nil {
			t.Fatal(err)
		}
		if members, err := c.Members(t.Context(), 0x1004); err != nil || len(members) != 2 || !slices.Contains(members, Member{vfPorts[0], true}) {
			t.Errorf("the members are %v, %v", members, err)
		}
	}
	if err := c.Set(t.Context(), 0x1005, vfPorts); err != nil {
		t.Errorf("a P_Key that is not there: %v", err)
	}
}

func TestManyPorts(t *testing.T) {
	d := newDouble(t)
	c := d.client(t)
	var many []fabric.GUID
	for vm := range 250 {
		many = append(many, fabric.PortGUID(7, vm, 0))
	}
	d.newer = true // the GUIDs are in the URL
	if err := errors.Join(c.Add(t.Context(), 1, many), c.Confirm(t.Context(), 1, many), c.Remove(t.Context(), 1, many), c.ConfirmGone(t.Context(), 1, many)); err != nil {
		t.Fatal(err)
	}
	if left := d.membersOf("0x1"); len(left) != 0 {
		t.Errorf("%d members are left", len(left))
	}
}

func TestUserAndPassword(t *testing.T) {
	d := newDouble(t)
	o := d.options(t)
	o.TokenFile = file(t, 0o600, "admin:secret\n")
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	testAJobsPartition(t, c, d)
}

func TestOptionsThatAreRefused(t *testing.T) {
	d := newDouble(t)
	tests := map[string]struct {
		change func(*Options)
		want   string
	}{
		"without TLS":                     {func(o *Options) { o.URL = "http://ufm" }, "is not an https URL: others could read the token"},
		"without a host":                  {func(o *Options) { o.URL = "https:///x" }, "is not an https URL"},
		"no URL":                          {func(o *Options) { o.URL = "https://a b" }, "invalid character"},
		"a token that all can read":       {func(o *Options) { o.TokenFile = file(t, 0o644, token) }, "every user can open it"},
		"a token that all can write":      {func(o *Options) { o.TokenFile = file(t, 0o602, token) }, "every user can open it"},
		"no token":                        {func(o *Options) { o.TokenFile = file(t, 0o600, "\n") }, "does not have one line"},
		"two tokens":                      {func(o *Options) { o.TokenFile = file(t, 0o600, "a\nb\n") }, "does not have one line"},
		"a token file that is not there":  {func(o *Options) { o.TokenFile += "x" }, "no such file"},
		"certificates that are not there": {func(o *Options) { o.CAFile += "x" }, "no such file"},
		"certificates that are none":      {func(o *Options) { o.CAFile = o.TokenFile }, "has no certificate in PEM format"},
	}
	if _, err := New(d.options(t)); err != nil {
		t.Fatalf("good options: %v", err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := d.options(t)
			tt.change(&o)
			if _, err := New(o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one that says %q", err, tt.want)
			} else if strings.Contains(err.Error(), token) {
				t.Errorf("the error has the token: %v", err)
			}
		})
	}
}

func TestWhatUFMAnswersIsInTheError(t *testing.T) {
	long := strings.Repeat("x", 1000)
	tests := map[string]struct {
		status       int
		answer, want string
	}{
		"a refusal":           {400, "{\"error\":\n \"Invalid\x1b[31m pkey\"}", `400 Bad Request: {"error": "Invalid[31m pkey"}`},
		"a token that is old": {401, "", "401 Unauthorized; is the token in ufm_token_file still valid?"},
		"a failure":           {500, long, "500 Internal Server Error: " + long[:300]},
		"no JSON":             {200, "<html>", "read UFM's answer to GET /app/ufm_version (<html>): invalid character"},
		"a redirection":       {302, "", "it redirects to https://elsewhere/"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "https://elsewhere/")
				w.WriteHeader(tt.status)
				fmt.Fprint(w, tt.answer)
			}))
			defer server.Close()
			_, err := (&double{Server: server}).client(t).Validate(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), long[:301]) {
				t.Errorf("error = %v, want one that says %q", err, tt.want)
			}
		})
	}
}

func TestAStrangerIsNotUFM(t *testing.T) {
	d, other := newDouble(t), newDouble(t)
	o := d.options(t)
	o.CAFile = ""
	for name, o := range map[string]Options{"another certificate": o, "another host": {URL: strings.Replace(other.URL, "127.0.0.1", "localhost", 1), TokenFile: o.TokenFile, CAFile: d.options(t).CAFile}} {
		c, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Validate(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: error = %v", name, err)
		}
	}
	if asked := slices.Concat(d.asked, other.asked); len(asked) > 0 || cmp.Or(d.auth, other.auth) != "" {
		t.Errorf("it was asked %v, and has got %q", asked, d.auth)
	}
}

func TestASlowUFM(t *testing.T) {
	ended := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ended }))
	defer server.Close()
	defer close(ended)
	o := (&double{Server: server}).options(t)
	o.Timeout = 50 * time.Millisecond
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := c.Add(t.Context(), 1, all); err == nil || !strings.Contains(err.Error(), "give 3 ports the P_Key 0x8001: ask UFM: ") {
		t.Errorf("error = %v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}
