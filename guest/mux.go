package guest

import (
	"encoding/binary"
	"errors"
	"io"
	"time"

	"github.com/hashicorp/yamux"
)

// frameHeader is the length of a yamux frame's header: version, type, two bytes
// of flags, four of the stream, four of the length.
const frameHeader = 12

const (
	frameData = 0
	framePing = 2
)

var errPing = errors.New("the peer pings, which this protocol does not")

// clientSession makes the end of a session that opens streams, serverSession the end that
// accepts them.
func clientSession(rw io.ReadWriteCloser) (*yamux.Session, error) {
	return yamux.Client(&framed{rw: rw}, muxConfig())
}

func serverSession(rw io.ReadWriteCloser) (*yamux.Session, error) {
	return yamux.Server(&framed{rw: rw}, muxConfig())
}

// muxConfig has no timers: a paused VM or a stopped relay is only late, and both ends
// notice when the connection itself ends.
func muxConfig() *yamux.Config {
	c := yamux.DefaultConfig()
	c.EnableKeepAlive = false
	c.ConnectionWriteTimeout = 365 * 24 * time.Hour
	c.StreamOpenTimeout = 0
	c.StreamCloseTimeout = 0
	c.LogOutput = io.Discard // errors say the same
	return c
}

// framed is the connection below a session; it knows where yamux's frames begin. It refuses
// pings, because yamux starts a goroutine for each: a peer that sends pings and reads
// nothing would fill the memory. It writes a frame's header together with its body, because
// each write to a virtio-serial port costs an exit to the host.
type framed struct {
	rw    io.ReadWriteCloser
	frame []byte // the header of a data frame until its body comes, else empty

	header [frameHeader]byte // header of the frame being read
	have   int               // bytes of the header read so far
	body   uint32            // bytes of the frame's body still to come
}

func (f *framed) Read(p []byte) (int, error) {
	n, err := f.rw.Read(p)
	if check := f.follow(p[:n]); check != nil {
		return 0, check
	}
	return n, err
}

// follow keeps track of where frames begin.
func (f *framed) follow(p []byte) error {
	for len(p) > 0 {
		if f.body > 0 {
			skip := min(uint64(f.body), uint64(len(p)))
			f.body, p = f.body-uint32(skip), p[skip:]
			continue
		}
		n := copy(f.header[f.have:], p)
		f.have, p = f.have+n, p[n:]
		if f.have < frameHeader {
			return nil
		}
		f.have = 0
		switch f.header[1] {
		case framePing:
			return errPing
		case frameData:
			f.body = binary.BigEndian.Uint32(f.header[8:])
		}
	}
	return nil
}

// Write expects a header or a body in each call, from one goroutine at a time.
func (f *framed) Write(p []byte) (int, error) {
	if len(f.frame) > 0 {
		f.frame = append(f.frame, p...)
		n, err := f.rw.Write(f.frame)
		f.frame = f.frame[:0]
		return max(n-frameHeader, 0), err
	}
	if len(p) == frameHeader && p[1] == frameData && binary.BigEndian.Uint32(p[8:]) > 0 {
		f.frame = append(f.frame, p...)
		return len(p), nil
	}
	return f.rw.Write(p)
}

func (f *framed) Close() error { return f.rw.Close() }

// accept returns the peer's next stream, or why no further one will come.
func accept(mux *yamux.Session) (*yamux.Stream, error) {
	stream, err := mux.AcceptStream()
	// A stream that comes just before the session's end hides the cause of the end.
	for tries := muxConfig().AcceptBacklog; errors.Is(err, yamux.ErrSessionShutdown) && tries > 0; tries-- {
		stream, err = mux.AcceptStream()
	}
	return stream, noEOF(err)
}
