package manager

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/internal/httpsclient"
)

// maxAnswer bounds an answer of the fabric manager, in bytes. A list has about 60 for each
// job.
const maxAnswer = 16 << 20

// Options are those of a [Client].
type Options struct {
	URL       string // https://HOST:PORT of the fabric manager
	TokenFile string // a bearer token, or USER:PASSWORD
	CAFile    string // certificates of the authorities, PEM; "" for the system's
	Timeout   time.Duration
	Addrs     int // multicast addresses of each job
	MinNodes  int // told to libfabric: smaller groups use no hardware collectives
}

// A Client speaks to a fabric manager. No method takes longer than the time-out.
type Client struct {
	options Options
	base    *url.URL
	http    http.Client
}

// New returns a client. It does not connect yet.
func New(o Options) (*Client, error) {
	o.URL = strings.TrimRight(o.URL, "/")
	base, err := url.Parse(o.URL)
	switch {
	case err == nil && base.User != nil:
		return nil, errors.New("fabric manager: the URL has a password: write it into token_file of [fabric.collectives], as USER:PASSWORD")
	case err != nil || base.Scheme != "https" || base.Host == "":
		return nil, fmt.Errorf("fabric manager: %q is not https://HOST:PORT", o.URL)
	}
	authorities, err := httpsclient.Authorities(o.CAFile)
	if err != nil {
		return nil, fmt.Errorf("fabric manager %s: %w", o.URL, err)
	}
	return &Client{options: o, base: base, http: http.Client{
		// The environment's proxies and redirections would bring the token to others.
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// A statusError is an answer of the fabric manager other than success.
type statusError struct {
	Status int    // of HTTP
	Detail string // the fabric manager's words; "" if it has none
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("the fabric manager answers %d %s", e.Status, http.StatusText(e.Status))
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden {
		text += "; look at token_file in [fabric.collectives] of slurmv.toml"
	}
	return text
}

// gone reports whether the fabric manager does not know what the request was about.
func gone(err error) bool {
	var status *statusError
	return errors.As(err, &status) && status.Status == http.StatusNotFound
}

// A silenceError says that the fabric manager has not answered in time.
type silenceError struct {
	URL  string
	Wait time.Duration
}

func (e *silenceError) Error() string {
	return fmt.Sprintf("the fabric manager %s has not answered within %v", e.URL, e.Wait)
}

// Is reports whether target is [context.DeadlineExceeded].
func (e *silenceError) Is(target error) bool { return target == context.DeadlineExceeded }

// withTimeout returns a context for the requests of one method.
func (c *Client) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.options.Timeout, &silenceError{c.options.URL, c.options.Timeout})
}

// do sends a request, with body as JSON unless it is nil, and reads the answer into answer
// unless that is nil.
func (c *Client) do(ctx context.Context, method, path string, body, answer any) error {
	request, err := c.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return because(ctx, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return because(ctx, fmt.Errorf("read the answer of %s: %w", c.options.URL, err))
	case response.StatusCode < 200 || response.StatusCode > 299:
		return &statusError{Status: response.StatusCode, Detail: detail(text)}
	case len(text) > maxAnswer:
		return fmt.Errorf("the answer of %s is larger than %d MiB", c.options.URL, maxAnswer>>20)
	case answer == nil:
		return nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("the answer of %s is not understood: %w", c.options.URL, err)
	}
	return nil
}

// because returns the reason for err in words that say what to do.
func because(ctx context.Context, err error) error {
	var certificate *tls.CertificateVerificationError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &certificate):
		return fmt.Errorf("%w; look at ca_file in [fabric.collectives] of slurmv.toml", err)
	}
	return err
}

func (c *Client) request(ctx context.Context, method, path string, body any) (*http.Request, error) {
	var text bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&text).Encode(body); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base.JoinPath(path).String(), &text)
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	request.Header.Set("Accept", "application/json")
	return request, c.authorize(request)
}

// authorize reads the token at each request: sites renew it in its file.
func (c *Client) authorize(request *http.Request) error {
	login, err := httpsclient.ReadLogin(c.options.TokenFile)
	if err != nil {
		return fmt.Errorf("token for the fabric manager: %w", err)
	}
	if login.User != "" {
		request.SetBasicAuth(login.User, login.Secret)
	} else {
		request.Header.Set("Authorization", "Bearer "+login.Secret)
	}
	return nil
}

// detail returns the words of an error document, at most 200 bytes, in one line.
func detail(text []byte) string {
	var document struct {
		Detail string `json:"detail"`
	}
	if json.Unmarshal(text, &document) != nil {
		return ""
	}
	words := strings.Join(strings.Fields(document.Detail), " ")
	return words[:min(len(words), 200)]
}
