package openstack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/imagedata"
)

// A glance that takes less than leastProgress of an image within uploadPatience takes no more of it.
const (
	uploadPatience = time.Minute
	leastProgress  = mib
	mib            = 1 << 20
)

// send gives an image its data, and returns their digest.
func (g glance) send(ctx context.Context, id string, i Image) (sum string, err error) {
	sum, err = g.sendOnce(ctx, id, i)
	if errors.Is(err, errReadOnce) { // gophercloud has a new token now
		sum, err = g.sendOnce(ctx, id, i)
	}
	return sum, err
}

func (g glance) sendOnce(ctx context.Context, id string, i Image) (sum string, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	data := newBody(i)
	go data.watch(ctx, stop)
	err = imagedata.Upload(ctx, g.api, id, data).ExtractErr()
	if err == nil {
		return data.digest(), nil
	}
	if stalled := (stalledError{}); errors.As(context.Cause(ctx), &stalled) {
		err = stalled
	}
	return "", data.explain(err)
}

// A body is a file on its way. It is read once: net/http may go on reading it after the cloud has answered, so no other
// request can have it.
type body struct {
	file  io.Reader
	size  int64
	taken atomic.Int64 // by the connection to glance, which has some MiB on the way
	reads atomic.Bool  // now, from the file
	ended atomic.Bool  // all of it is taken

	mu  sync.Mutex
	sum hash.Hash
}

func newBody(i Image) *body {
	return &body{file: io.NewSectionReader(i.File, 0, i.Size), size: i.Size, sum: sha256.New()}
}

func (b *body) Read(into []byte) (int, error) {
	b.reads.Store(true)
	n, err := b.file.Read(into)
	b.reads.Store(false)
	b.mu.Lock()
	b.sum.Write(into[:n])
	b.mu.Unlock()
	b.taken.Add(int64(n))
	b.ended.Store(err != nil)
	return n, err
}

// digest is that of the whole file; "" if it was not read to its end.
func (b *body) digest() string {
	if !b.ended.Load() || b.taken.Load() != b.size {
		return ""
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return hex.EncodeToString(b.sum.Sum(nil))
}

var errReadOnce = errors.New("the cloud wants the image once more")

// Seek refuses to go back. gophercloud does when a token has expired, and would send what is left without it.
func (*body) Seek(int64, int) (int64, error) { return 0, errReadOnce }

// watch stops an upload that stands still. It counts seconds in which it runs: scontrol suspend stops this process, too.
func (b *body) watch(ctx context.Context, stop context.CancelCauseFunc) {
	each := time.NewTicker(time.Second)
	defer each.Stop()
	for seen, still := int64(0), time.Duration(0); ; still += time.Second {
		if taken := b.taken.Load(); taken >= seen+leastProgress {
			seen, still = taken, 0
		}
		if still >= b.patience() {
			stop(stalledError{b.slow(), b.patience()})
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-each.C:
		}
	}
}

// patience is longer at the end: the answer has its own, and begins when the connection has passed on everything.
func (b *body) patience() time.Duration {
	if b.ended.Load() {
		return uploadPatience + answerPatience
	}
	return uploadPatience
}

func (b *body) slow() string {
	if b.reads.Load() {
		return "the file could not be read"
	}
	return "glance took nearly nothing"
}

// explain adds how far an upload came.
func (b *body) explain(err error) error {
	if err == nil || errors.Is(err, errReadOnce) {
		return err
	}
	return fmt.Errorf("%w (after %d of %d MiB)", err, b.taken.Load()/mib, (b.size+mib-1)/mib)
}

// A stalledError is the end of an upload or an answer that stood still. Like any answer that is lost, it is a [net.Error].
// glance has not got all of an upload, and a service that answers has done its work, so it is not one for which they were
// too slow (isLate).
type stalledError struct {
	slow  string        // what was slow
	still time.Duration // how long
}

func (e stalledError) Error() string {
	return fmt.Sprintf("%s for %v", e.slow, e.still)
}
func (stalledError) Timeout() bool   { return false }
func (stalledError) Temporary() bool { return true }
