package openstack

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
)

// outage is how long the cloud may be away, or say that it is, before a request fails.
const outage = 2 * time.Minute

// The pauses between two tries of a request.
const (
	firstPause = 200 * time.Millisecond
	mostPause  = 5 * time.Second
)

// try does something until it succeeds, fails for good, or the cloud has been away for too
// long.
func try(ctx context.Context, do func() error) error {
	given := time.Now().Add(outage)
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		err := do()
		if err == nil || !isAway(err) || time.Now().After(given) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; the last answer: %w", context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
}

// makeOnce makes something in the cloud and returns its id. A request whose answer was lost may have been carried out. So
// before it is made again, find looks for what it has made; "" is nothing.
//
// A request that the cloud was too slow to answer is never made again: the cloud is still at work on it, and would make a
// second server, which cannot have the ports of the first. It is looked for instead.
func makeOnce(ctx context.Context, find func() (string, error), request func(context.Context) (string, error)) (id string, err error) {
	var lost error
	err = try(ctx, func() error {
		if lost != nil {
			if id, err = find(); err != nil || id != "" {
				return err
			}
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case isLate(lost):
			return lost
		}
		answered, cancel := untilAnswered(ctx)
		defer cancel()
		id, lost = request(answered)
		return lost
	})
	return id, err
}

// isLate reports whether the cloud has the request, and has not answered it in time.
func isLate(err error) bool {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return false
	}
	var network net.Error
	return gophercloud.ResponseCodeIs(err, http.StatusGatewayTimeout) || errors.As(err, &network) && network.Timeout()
}

// untilAnswered is the context of a request that makes something. It does not end with ctx: the
// cloud could carry out a request that was given up after [Cloud.Delete] has looked.
func untilAnswered(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), answerPatience)
}

// isAway reports whether the cloud has not answered, or has said that it cannot now. The
// request may have been carried out.
func isAway(err error) bool {
	if login := failedLogin(err); login != nil {
		return isAway(login)
	}
	if remedy(err) != "" { // net/http makes a net.Error of each
		return false
	}
	var unexpected gophercloud.ErrUnexpectedResponseCode
	if errors.As(err, &unexpected) {
		switch unexpected.Actual {
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusTooManyRequests:
			return true
		case http.StatusInternalServerError:
			// The cloud's message queue or database restarts. What was to be made may be there in part.
			return unexpected.Method == http.MethodGet || unexpected.Method == http.MethodDelete || hasNotReached(unexpected.Body)
		}
		return false
	}
	var network net.Error
	return errors.As(err, &network)
}

// hasNotReached reports whether nova says, in its "Unexpected API Error", that it has not reached glance, neutron or keystone. It
// asks these before it makes anything. The first stands for "Failed to access port" (nova.network.neutron).
func hasNotReached(body []byte) bool {
	return slices.ContainsFunc([]string{
		"nova.exception.NovaException",
		"nova.exception.GlanceConnectionFailed",
		"neutronclient.common.exceptions.ConnectionFailed",
		"keystoneauth1.exceptions.connection.ConnectFailure",
	}, func(class string) bool { return bytes.Contains(body, []byte("<class '"+class+"'>")) })
}

// remedy is what to do about a cloud that cannot be reached, and will not be by waiting; "" for other errors.
func remedy(err error) string {
	const address, file = "correct auth_url", " of the cloud in clouds.yaml (backend.clouds_file)"
	var certificate *tls.CertificateVerificationError
	var name *net.DNSError
	switch {
	case errors.As(err, &certificate):
		return "name the CA of that server as cacert" + file + ", or " + address + " there"
	case errors.Is(err, http.ErrSchemeMismatch):
		return address + file + ": it must begin with http there"
	case errors.As(err, &name) && name.IsNotFound:
		return address + file + ", or that host in keystone's catalogue, or the name servers of this node"
	}
	return ""
}

// failedLogin returns why keystone gave no new token for one that had expired, if err is about that. gophercloud's
// error does not unwrap.
func failedLogin(err error) error {
	var login *gophercloud.ErrUnableToReauthenticate
	if errors.As(err, &login) {
		return login.ErrReauth
	}
	return nil
}

func isGone(err error) bool { return gophercloud.ResponseCodeIs(err, http.StatusNotFound) }

// explain says what the cloud has refused, and why.
func explain(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("OpenStack: %s: %w", what, said(err))
}

// said is the cloud's answer in its words, or why there is none.
func said(err error) error {
	if login := failedLogin(err); login != nil {
		return fmt.Errorf("log in again: %w", said(login))
	}
	var unexpected gophercloud.ErrUnexpectedResponseCode
	if errors.As(err, &unexpected) {
		return fmt.Errorf("%s (HTTP status %d)", message(unexpected.Body), unexpected.Actual)
	}
	if remedy := remedy(err); remedy != "" {
		return fmt.Errorf("%w; %s", err, remedy)
	}
	return err
}

// message takes the sentence from the body of a refusal: {"badRequest": {"message": …}} of
// nova and keystone, {"NeutronError": {"message": …}} of neutron. glance answers with HTML.
func message(body []byte) string {
	var kinds map[string]json.RawMessage
	if json.Unmarshal(body, &kinds) == nil {
		for _, kind := range kinds {
			var said struct{ Message string }
			if json.Unmarshal(kind, &said) == nil && said.Message != "" {
				return strings.Join(strings.Fields(said.Message), " ")
			}
		}
	}
	return strings.Join(strings.Fields(withoutTags(string(body))), " ")
}

// withoutTags leaves out what is between < and >.
func withoutTags(html string) string {
	var text strings.Builder
	for part := range strings.SplitSeq(html, "<") {
		if _, after, found := strings.Cut(part, ">"); found {
			part = " " + after
		}
		text.WriteString(part)
	}
	return text.String()
}
