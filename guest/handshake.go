package guest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"
)

// The greeting. The host repeats HELLO until the guest answers READY with the
// same nonce, so it does not matter what was on the wire before, when the guest
// boots, or which end was replaced.
const (
	hello = "\nSLURMV1 HELLO %s\n"
	ready = "\nSLURMV1 READY %s\n"
)

const greetEvery = 250 * time.Millisecond

// A guest that did not notice a new host waits for the rest of a frame. The
// filler is longer than any frame and ends the wait. No zero byte is in it: the
// guest takes the first one after the greeting for the first frame.
var filler = bytes.Repeat([]byte{'\n'}, chunk+frameHeader+1)

// fillerAfter is the greeting that the filler precedes, and every further
// such number.
const fillerAfter = 12

// greet finds the guest. It returns a reader of what follows the answer. When
// ctx ends it closes rw.
func greet(ctx context.Context, rw io.ReadWriteCloser) (io.Reader, error) {
	stop := context.AfterFunc(ctx, func() { _ = rw.Close() })
	defer stop()

	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	nonce := hex.EncodeToString(random[:])

	answered := make(chan struct{})
	wrote := make(chan error, 1)
	go func() { wrote <- repeatHello(rw, nonce, answered) }()

	in := bufio.NewReaderSize(rw, 64<<10)
	err := awaitReady(in, nonce)
	close(answered)
	if err != nil {
		_ = rw.Close() // unblocks the greeting
	}
	if werr := <-wrote; err == nil {
		err = werr
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("reach the agent in the VM: %w", err)
	}
	return in, nil
}

func repeatHello(w io.Writer, nonce string, answered <-chan struct{}) error {
	tick := time.NewTicker(greetEvery)
	defer tick.Stop()
	for i := 1; ; i++ {
		if i%fillerAfter == 0 {
			if _, err := w.Write(filler); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(w, hello, nonce); err != nil {
			return err
		}
		select {
		case <-answered:
			return nil
		case <-tick.C:
		}
	}
}

// awaitReady drops everything up to the answer to nonce.
func awaitReady(in *bufio.Reader, nonce string) error {
	want := fmt.Appendf(nil, ready, nonce)[1:]
	for {
		line, err := in.ReadSlice('\n')
		if bytes.Equal(line, want) {
			return nil
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return noEOF(err)
		}
	}
}

var helloLine = regexp.MustCompile(`^SLURMV1 HELLO ([0-9a-f]{32})\n$`)

// answerHello waits for a host and answers it, more than one if several come
// one after the other. It returns when in is at the first frame of the last.
func answerHello(in *bufio.Reader, w io.Writer) error {
	answered := ""
	for {
		if first, err := in.Peek(1); err != nil {
			return noEOF(err)
		} else if first[0] == 0 && answered != "" {
			return nil
		}
		line, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return noEOF(err)
		}
		match := helloLine.FindSubmatch(line)
		if match == nil || string(match[1]) == answered {
			continue
		}
		answered = string(match[1])
		if _, err := fmt.Fprintf(w, ready, answered); err != nil {
			return err
		}
	}
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the connection ended")
	}
	return err
}
