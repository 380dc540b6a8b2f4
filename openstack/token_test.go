package openstack

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// A keystone gives tokens away, in front of a nova that takes only the newest. Both answer in
// the form of the recorded ones.
type keystone struct {
	nova    faultyNova
	mu      sync.Mutex
	logins  int
	away    int // so many logins get 503
	refused int // requests with an old token
}

func (k *keystone) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/auth/tokens") {
		return k.login(r)
	}
	if r.Header.Get("X-Auth-Token") != k.token() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.refused++
		answer, err := reply(http.StatusUnauthorized, map[string]any{"error": map[string]any{"code": 401, "title": "Unauthorized"}})
		answer.Request = r
		return answer, err
	}
	return k.nova.RoundTrip(r)
}

func (k *keystone) token() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return string(rune('a' + k.logins))
}

// expire makes the token that was given last invalid.
func (k *keystone) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.logins += 10
}

func (k *keystone) login(r *http.Request) (*http.Response, error) {
	if k.isAway() {
		answer, err := reply(http.StatusServiceUnavailable, nil)
		answer.Request = r
		return answer, err
	}
	service := func(kind string) map[string]any {
		return map[string]any{"type": kind, "name": kind, "endpoints": []map[string]any{
			{"interface": "public", "region": "RegionOne", "region_id": "RegionOne", "url": "http://" + kind + "/v2.1"},
		}}
	}
	answer, err := reply(http.StatusCreated, map[string]any{"token": map[string]any{
		"project": map[string]any{"id": "p"}, "expires_at": "2030-01-01T00:00:00.000000Z",
		"catalog": []map[string]any{service("compute"), service("network"), service("image")},
	}})
	answer.Header.Set("X-Subject-Token", k.token())
	answer.Request = r
	return answer, err
}

// isAway counts a login, if keystone is there.
func (k *keystone) isAway() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.away > 0 {
		k.away--
		return true
	}
	k.logins++
	return false
}

// A token that expires while a job has its VMs is renewed, and what was asked with it is done
// once.
func TestAnExpiredTokenIsRenewed(t *testing.T) {
	for name, tt := range map[string]struct {
		expires bool
		away    int
	}{
		"it expires":                        {expires: true},
		"it does not":                       {},
		"it expires while keystone is away": {expires: true, away: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &keystone{}
				c := open(t, Settings{CloudsFile: cloudsFile(t, replayed), Cloud: "slurmv", Label: "test", wire: func(http.RoundTripper) http.RoundTripper { return k }})
				if k.away = tt.away; tt.expires {
					k.expire()
				}
				if err := c.nova.createServer(t.Context(), "m", wanted{Server: Server{Name: "vm0", Host: "n1"}}); err != nil {
					t.Error(err)
				}
				if (k.refused > 0) != tt.expires || k.nova.posts != 1 || len(k.nova.servers) != 1 {
					t.Errorf("%d requests refused, %d servers asked for, %d made", k.refused, k.nova.posts, len(k.nova.servers))
				}
			})
		})
	}
}
