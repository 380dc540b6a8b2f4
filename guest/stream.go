package guest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/yamux"
)

// chunk is the most data in one frame of the session. A frame and its header fit into one
// buffer of the virtio-serial port, and streams take turns after each frame.
const chunk = 32<<10 - frameHeader

// past is a deadline that ends waiting reads and writes at once.
var past = time.Unix(1, 0)

// A stream is a stream of a session, after or before its header line.
type stream struct {
	raw *yamux.Stream
	in  *bufio.Reader
}

func newStream(raw *yamux.Stream) *stream {
	return &stream{raw: raw, in: bufio.NewReaderSize(raw, 4<<10)}
}

func (s *stream) Read(p []byte) (int, error) { return s.in.Read(p) }

// Write writes all of p or fails.
func (s *stream) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		var m int
		m, err = s.raw.Write(p[:min(len(p), chunk)])
		n, p = n+m, p[m:]
	}
	return n, err
}

// CloseWrite tells the peer that nothing more will be written.
func (s *stream) CloseWrite() { _ = s.raw.Close() }

// Finish closes the stream in both directions. It reads and drops the peer's data until the
// peer closes its direction too, so that the peer never blocks.
func (s *stream) Finish() {
	s.CloseWrite()
	for {
		_ = s.raw.SetDeadline(time.Time{})
		if _, err := io.Copy(io.Discard, s.raw); !errors.Is(err, yamux.ErrTimeout) {
			return
		}
	}
}

// Abandon makes all reads and writes end now, with an error.
func (s *stream) Abandon() { _ = s.raw.SetDeadline(past) }

// readLine returns the next line, at most limit bytes of it.
func (s *stream) readLine(limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := s.in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > limit:
			return nil, fmt.Errorf("a line of more than %d bytes", limit)
		case err == nil:
			return line, nil
		case errors.Is(err, io.EOF) && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// readJSON reads one line into v.
func (s *stream) readJSON(v any, limit int) error {
	line, err := s.readLine(limit)
	if err != nil {
		return err
	}
	return json.Unmarshal(line, v)
}
