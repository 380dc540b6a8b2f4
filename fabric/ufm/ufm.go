// Package ufm gives jobs their InfiniBand partitions through NVIDIA's UFM, the manager of
// fabrics whose ports can be virtual. It is the alternative to package opensm, for sites where
// UFM writes OpenSM's configuration itself.
//
// [Client.Add] and [Client.Remove] change the members of a P_Key; [Client.Confirm] and
// [Client.ConfirmGone] wait until UFM reports them. UFM keeps the partitions, so nothing is
// lost if it restarts.
//
// The requests are those of the UFM Enterprise REST API Guide, chapter PKey GUIDs, and of
// Mellanox/ib-kubernetes.
package ufm

import (
	"bytes"
	"cmp"
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
	"unicode"

	"github.com/slurm-v/slurm-v/internal/httpsclient"
)

// Options say where UFM is.
type Options struct {
	URL string // https://HOST or https://HOST:PORT

	// TokenFile has an access token of UFM, or USER:PASSWORD, in a line. Nobody but its owner
	// and group can read it.
	TokenFile string

	CAFile  string        // certificates in PEM format that sign UFM's; "" for the system's
	Timeout time.Duration // of a request; 0 is five seconds
}

const usualTimeout = 5 * time.Second

// A Client talks to one UFM. Its methods may be called from several goroutines.
type Client struct {
	http  http.Client
	base  string // https://HOST/ufmRestV3, or /ufmRest for users with passwords
	login httpsclient.Login
}

// New returns a client. It does not connect; see [Client.Validate].
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, fmt.Errorf("UFM: %w", err)
	}
	if u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("UFM: %q is not an https URL: others could read the token", o.URL)
	}
	login, err := httpsclient.ReadLogin(o.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("UFM's token: %w", err)
	}
	roots, err := httpsclient.Authorities(o.CAFile)
	if err != nil {
		return nil, fmt.Errorf("the certificates that sign UFM's: %w", err)
	}
	c := &Client{login: login, base: strings.TrimSuffix(o.URL, "/") + "/ufmRestV3"}
	if login.User != "" {
		c.base = strings.TrimSuffix(o.URL, "/") + "/ufmRest"
	}
	c.http = http.Client{
		Timeout:   cmp.Or(o.Timeout, usualTimeout),
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
		// The token is for this host only.
		CheckRedirect: func(r *http.Request, _ []*http.Request) error {
			return fmt.Errorf("it redirects to %s: write that into slurmv.toml, if it is UFM", r.URL.Redacted())
		},
	}
	return c, nil
}

// A statusError is an answer of UFM that says no.
type statusError struct {
	Request string // "POST /resources/pkeys/"
	Status  int    // of HTTP
	Answer  string // what UFM says, on one line, cut
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("UFM answers %s with %d %s", e.Request, e.Status, http.StatusText(e.Status))
	if e.Answer != "" {
		text += ": " + e.Answer
	}
	if e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden {
		text += "; is the token in ufm_token_file still valid?"
	}
	return text
}

// has reports whether err is an answer of UFM with one of these statuses.
func has(err error, statuses ...int) bool {
	var e *statusError
	if !errors.As(err, &e) {
		return false
	}
	for _, s := range statuses {
		if e.Status == s {
			return true
		}
	}
	return false
}

// maxAnswer bounds what is read of an answer, in bytes: 100,000 members take some 8 MB.
const maxAnswer = 64 << 20

// doSurely is do, for a request whose 404 counts: a proxy in front of UFM answers so, too,
// while UFM is away. Then UFM itself has to answer, before it is asked once more.
func (c *Client) doSurely(ctx context.Context, method, path string, body, result any) error {
	err := c.do(ctx, method, path, body, result)
	if !has(err, http.StatusNotFound) {
		return err
	}
	if _, err := c.Validate(ctx); err != nil {
		return fmt.Errorf("%s %s: not found (the answer may come from a proxy, not from UFM): %w", method, path, err)
	}
	return c.do(ctx, method, path, body, result)
}

// do makes a request. It reads the answer into result, if that is not nil.
func (c *Client) do(ctx context.Context, method, path string, body, result any) error {
	var text io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		text = bytes.NewReader(b)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, text)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	c.sign(request)
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("ask UFM: %w", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return &statusError{method + " " + path, response.StatusCode, oneLine(answer)}
	}
	if err == nil && result != nil {
		err = json.Unmarshal(answer, result)
	}
	if err != nil {
		return fmt.Errorf("read UFM's answer to %s %s (%s): %w", method, path, oneLine(answer), err)
	}
	return nil
}

// sign says who asks. UFM takes its tokens as the content of Basic.
func (c *Client) sign(request *http.Request) {
	if c.login.User != "" {
		request.SetBasicAuth(c.login.User, c.login.Secret)
		return
	}
	request.Header.Set("Authorization", "Basic "+c.login.Secret)
}

// oneLine makes an answer fit for an error.
func oneLine(answer []byte) string {
	text := strings.Join(strings.Fields(string(answer[:min(len(answer), 300)])), " ")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
}
