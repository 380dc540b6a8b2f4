package openstack

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// A patient network ends answers that stand still. net/http bounds only how long an answer may take to begin.
type patient struct{ network http.RoundTripper }

// RoundTrip carries out a request whose answer is read later.
func (p patient) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, stop := context.WithCancelCause(r.Context())
	answer, err := p.network.RoundTrip(r.WithContext(ctx))
	if err != nil {
		stop(nil)
		return nil, err
	}
	still := time.AfterFunc(answerPatience, func() { stop(stalledError{"the answer stood still", answerPatience}) })
	answer.Body = &answerBody{ReadCloser: answer.Body, ctx: ctx, stop: stop, still: still}
	return answer, nil
}

// An answerBody is an answer on its way.
type answerBody struct {
	io.ReadCloser
	ctx   context.Context // of the request
	stop  context.CancelCauseFunc
	still *time.Timer
}

func (b *answerBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if n > 0 {
		b.still.Reset(answerPatience)
	}
	var stalled stalledError
	if err != nil && errors.As(context.Cause(b.ctx), &stalled) {
		err = stalled
	}
	return n, err
}

func (b *answerBody) Close() error {
	b.still.Stop()
	b.stop(nil)
	return b.ReadCloser.Close()
}
