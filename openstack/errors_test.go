package openstack

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gophercloud/gophercloud/v2"
)

func answer(status int, body string) error {
	return gophercloud.ErrUnexpectedResponseCode{Actual: status, Body: []byte(body), Method: "POST", URL: "http://cloud/servers"}
}

func TestExplain(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{answer(403, `{"forbidden": {"code": 403, "message": "Quota exceeded for cores: Requested 4, but already used 38 of 40 cores"}}`),
			"OpenStack: do it: Quota exceeded for cores: Requested 4, but already used 38 of 40 cores (HTTP status 403)"},
		{answer(400, `{"badRequest": {"code": 400, "message": "Compute host n9 could not be found."}}`),
			"OpenStack: do it: Compute host n9 could not be found. (HTTP status 400)"},
		{answer(409, `{"NeutronError": {"type": "MacAddressInUse", "message": "Unable to complete operation for network x.\n The mac address y is in use.", "detail": ""}}`),
			"OpenStack: do it: Unable to complete operation for network x. The mac address y is in use. (HTTP status 409)"},
		{answer(413, "<html>\n <head>\n  <title>413 Request Entity Too Large</title>\n </head>\n <body>\n  The storage is full.<br/>\n </body>\n</html>"),
			"OpenStack: do it: 413 Request Entity Too Large The storage is full. (HTTP status 413)"},
		{&gophercloud.ErrUnableToReauthenticate{ErrOriginal: answer(401, ""), ErrReauth: answer(401, `{"error": {"message": "The secret has expired."}}`)},
			"OpenStack: do it: log in again: The secret has expired. (HTTP status 401)"},
		{errors.New("no route"), "OpenStack: do it: no route"},
	} {
		if got := explain("do it", tt.err).Error(); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
	if explain("do it", nil) != nil {
		t.Error("success is explained")
	}
}

// nova does not tell what a host lacks, nor why one could not start a server if it was to try other hosts.
func TestWithCause(t *testing.T) {
	const exceeded = "Exceeded maximum number of retries. Exhausted all hosts available for retrying build failures for instance 4711."
	if got := withCause(exceeded, "n7"); !strings.HasPrefix(got, exceeded+" (The cause is in the log of nova-compute on node n7.") {
		t.Error(got)
	}
	if got := withCause("No valid host was found.", "n7"); !strings.HasPrefix(got, "No valid host was found. (Node n7 has too little left") {
		t.Error(got)
	}
	if got := withCause("internal error", "n7"); got != "internal error" {
		t.Error(got)
	}
}

// One that waits for ten minutes asks nova every five seconds, one that waits for some seconds twice a second.
func TestUntilNextLook(t *testing.T) {
	for waited, want := range map[time.Duration]time.Duration{
		0: 500 * time.Millisecond, 4 * time.Second: 500 * time.Millisecond, 8 * time.Second: time.Second, 10 * time.Minute: 5 * time.Second,
	} {
		if got := untilNextLook(waited); got != want {
			t.Errorf("after %v: %v, want %v", waited, got, want)
		}
	}
}

// A cloud that is away comes back, or is given up after a while; a refusal is final.
func TestTry(t *testing.T) {
	broken := func(method string) error {
		return gophercloud.ErrUnexpectedResponseCode{Actual: http.StatusInternalServerError, Method: method}
	}
	behind := func(class string) error {
		return answer(http.StatusInternalServerError, `{"computeFault": {"code": 500, "message": "Unexpected API Error. Please report this at `+
			`http://bugs.launchpad.net/nova/ and attach the Nova API log if possible.\n<class '`+class+`'>"}}`)
	}
	away, lost := answer(http.StatusServiceUnavailable, ""), &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for name, tt := range map[string]struct {
		answers []error // and then success
		want    int     // tries
		fails   bool
	}{
		"at once":                  {nil, 1, false},
		"after 503":                {[]error{away, away}, 3, false},
		"after no answer":          {[]error{lost, lost, away}, 4, false},
		"after a deaf name server": {[]error{&net.DNSError{Err: "server misbehaving", IsTemporary: true}}, 2, false},
		"a refusal":                {[]error{answer(403, "")}, 1, true},
		"a refusal after it":       {[]error{away, answer(409, "")}, 2, true},
		"a broken GET":             {[]error{broken(http.MethodGet)}, 2, false},
		"a broken DELETE":          {[]error{broken(http.MethodDelete)}, 2, false},
		"a broken POST":            {[]error{broken(http.MethodPost)}, 1, true},
		"glance away behind nova":  {[]error{behind("nova.exception.GlanceConnectionFailed"), behind("nova.exception.NovaException")}, 3, false},
		"another error of nova's":  {[]error{behind("nova.exception.NovaExceptionOfAnotherKind")}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				err := try(t.Context(), func() error {
					if tries++; tries <= len(tt.answers) {
						return tt.answers[tries-1]
					}
					return nil
				})
				if tries != tt.want || (err != nil) != tt.fails {
					t.Errorf("%d tries, %v", tries, err)
				}
			})
		})
	}
}

func TestTryGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := try(t.Context(), func() error { return answer(http.StatusServiceUnavailable, "") })
		if err == nil || time.Since(began) < outage || time.Since(began) > outage+2*mostPause {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

func TestTryEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("the job was cancelled"))
		defer cancel()
		err := try(ctx, func() error { return answer(http.StatusServiceUnavailable, "") })
		if err == nil || !strings.Contains(err.Error(), "the job was cancelled") {
			t.Error(err)
		}
	})
}

// Nobody finds out a server's name without the credentials, and two clusters that share them
// have different ones.
func TestNames(t *testing.T) {
	a, b := Names{[]byte("one\nsecret")}, Names{[]byte("two\nsecret")}
	const vm = "slurmv-7.0-vm1"
	if a.Server(vm) == b.Server(vm) || a.Server(vm) == a.Server(vm+"0") {
		t.Error(a.Server(vm), b.Server(vm), a.Server(vm+"0"))
	}
	if !strings.HasPrefix(a.Server(vm), vm+"-") || len(a.Server(vm)) != len(vm)+17 {
		t.Error(a.Server(vm))
	}
}
