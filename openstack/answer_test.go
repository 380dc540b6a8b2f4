package openstack

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gophercloud/gophercloud/v2"
)

// An answer of which no more comes is asked for again, and in the end an error. One that is only slow is awaited.
func TestAnAnswerThatStandsStill(t *testing.T) {
	const first, second = `{"images": [{"id": "1", "name": "demo", `, `"visibility": "public", "status": "active"}]}`
	for name, tt := range map[string]struct {
		still int           // so many answers stand still
		slow  time.Duration // each half of the others takes so long
		asked int           // how often
		want  string
	}{
		"all is well":            {asked: 1},
		"a slow answer":          {slow: answerPatience * 9 / 10, asked: 1},
		"an answer stands still": {still: 1, asked: 2},
		"all answers stand still": {still: 100, asked: 2,
			want: "OpenStack: look for image demo: the answer stood still for 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				answer := func(w http.ResponseWriter, r *http.Request) {
					asked++
					w.Header().Set("Content-Type", "application/json")
					_, _ = w.Write([]byte(first))
					_ = http.NewResponseController(w).Flush()
					if asked <= tt.still {
						<-r.Context().Done()
						return
					}
					time.Sleep(tt.slow)
					_, _ = w.Write([]byte(second[:9]))
					_ = http.NewResponseController(w).Flush()
					time.Sleep(tt.slow)
					_, _ = w.Write([]byte(second[9:]))
				}
				has, err := glanceAt(t, answer).HasImage(t.Context(), "demo")
				if has != (tt.want == "") || asked != tt.asked {
					t.Errorf("it has the image: %v; %d requests", has, asked)
				}
				if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)) {
					t.Error(err)
				}
			})
		})
	}
}

// glanceAt is a cloud whose glance is an HTTP server.
func glanceAt(t *testing.T, answer http.HandlerFunc) *Cloud {
	t.Helper()
	way := &pipes{calls: make(chan net.Conn), closed: make(chan struct{})}
	server := &httptest.Server{Listener: way, Config: &http.Server{Handler: answer}}
	server.Start()
	var own *http.Transport
	client := Settings{wire: func(network http.RoundTripper) http.RoundTripper {
		own = network.(*http.Transport)
		own.Proxy, own.DialContext = nil, way.dial
		return own
	}}.httpClient(nil)
	t.Cleanup(func() {
		own.CloseIdleConnections()
		server.Close()
	})
	provider := &gophercloud.ProviderClient{HTTPClient: client}
	return &Cloud{glance: glance{service{api: &gophercloud.ServiceClient{ProviderClient: provider, Endpoint: "http://cloud/"}}}}
}

// pipes are the way to a server in this process. No time passes on it in a test whose time is pretended.
type pipes struct {
	calls  chan net.Conn
	closed chan struct{}
	close  sync.Once
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.calls <- far:
		return near, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.calls:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.close.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "cloud", Net: "unix"} }
