package pmi

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// A reader cuts a byte stream into PMI messages.
type reader struct {
	in *bufio.Reader
}

// newReader returns a reader of the messages in r. It may read ahead.
func newReader(r io.Reader) *reader {
	return &reader{in: bufio.NewReader(r)}
}

// Next returns the next message with its framing. The first message of either direction
// is a line, whatever the dialect. At the end of the stream the error is [io.EOF], or
// [io.ErrUnexpectedEOF] inside a message.
func (r *reader) Next(d dialect) ([]byte, error) {
	if d == pmi2 {
		return r.counted()
	}
	msg, err := r.line(nil)
	if err != nil || !bytes.HasPrefix(msg, []byte("mcmd=")) {
		return msg, err
	}
	for !bytes.HasSuffix(msg, []byte("\nendcmd\n")) {
		if msg, err = r.line(msg); err != nil {
			return nil, inside(err)
		}
	}
	return msg, nil
}

// line appends one line to msg.
func (r *reader) line(msg []byte) ([]byte, error) {
	for {
		part, err := r.in.ReadSlice('\n')
		msg = append(msg, part...)
		switch {
		case len(msg) > maxMessage:
			return nil, fmt.Errorf("read PMI message: more than %d bytes", maxMessage)
		case err == nil:
			return msg, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case len(msg) > 0:
			return nil, inside(err)
		default:
			return nil, err
		}
	}
}

// counted reads one PMI-2 message. Slurm pads the length on the right, MPICH
// on the left.
func (r *reader) counted() ([]byte, error) {
	var digits [6]byte
	if _, err := io.ReadFull(r.in, digits[:]); err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(digits[:])), 10, 32)
	if err != nil {
		return nil, fmt.Errorf("read PMI-2 message: length %q is not a number", digits)
	}
	msg := make([]byte, len(digits)+int(n))
	copy(msg, digits[:])
	if _, err := io.ReadFull(r.in, msg[len(digits):]); err != nil {
		return nil, inside(err)
	}
	return msg, nil
}

func inside(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
