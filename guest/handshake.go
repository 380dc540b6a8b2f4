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
	"time"
)

// The greeting. The host repeats HELLO until the guest answers READY with the same nonce.
// So it does not matter what was sent before, when the guest boots, or which end was
// replaced.
const (
	hello = "\nSLURMV1 HELLO %s\n"
	ready = "\nSLURMV1 READY %s\n"
)

// The first greetings follow each other quickly, for a guest that is just closing the last
// host's session. The later ones wait for a VM that boots.
const (
	greetFirst = 10 * time.Millisecond
	greetEvery = 250 * time.Millisecond
)

// One end may have been replaced while the other still waits for the rest of a frame. The
// filler is longer than any frame, so it ends that wait, and it is no valid frame itself.
// It has no zero byte, because the guest takes the first zero byte after the greeting for
// the beginning of the first frame.
var filler = bytes.Repeat([]byte{'\n'}, chunk+frameHeader+1)

// needsFiller reports whether the filler goes before a greeting. It does not go before the
// first ones, which most guests answer, and only before few of the many that a booting VM
// does not read.
func needsFiller(greeting int) bool { return greeting == 8 || greeting%64 == 0 }

// greet greets the guest until it answers. It returns a reader of the bytes after the
// answer. It closes rw if ctx ends.
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
	pause := greetFirst
	for i := 1; ; i++ {
		if needsFiller(i) {
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
		case <-time.After(pause):
			pause = min(2*pause, greetEvery)
		}
	}
}

// awaitReady drops all bytes up to the answer to nonce.
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

// helloNonce returns the nonce of a greeting, if line is one.
func helloNonce(line []byte) (string, bool) {
	nonce, begins := bytes.CutPrefix(line, []byte("SLURMV1 HELLO "))
	nonce, ends := bytes.CutSuffix(nonce, []byte("\n"))
	_, err := hex.DecodeString(string(nonce))
	return string(nonce), begins && ends && len(nonce) == 32 && err == nil
}

// answerHello waits for a host and answers it. If several hosts come one after the other,
// it answers all. It returns when in is at the first frame of the last host.
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
		nonce, ok := helloNonce(line)
		if !ok || nonce == answered {
			continue
		}
		answered = nonce
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
