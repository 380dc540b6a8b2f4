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

// clientSession is the opening end of a session, serverSession the other.
func clientSession(rw io.ReadWriteCloser) (*yamux.Session, error) {
	return yamux.Client(&framed{rw: rw}, muxConfig())
}

func serverSession(rw io.ReadWriteCloser) (*yamux.Session, error) {
	return yamux.Server(&framed{rw: rw}, muxConfig())
}

// muxConfig has no timers: a paused VM or a stopped relay is late, not gone,
// and both ends notice when the connection itself ends.
func muxConfig() *yamux.Config {
	c := yamux.DefaultConfig()
	c.EnableKeepAlive = false
	c.ConnectionWriteTimeout = 365 * 24 * time.Hour
	c.StreamOpenTimeout = 0
	c.StreamCloseTimeout = 0
	c.LogOutput = io.Discard // the causes come back as errors
	return c
}

// framed is the connection below a session, seen by its frames. It refuses
// pings: yamux starts a goroutine for each, so a peer which pings and does not
// read would fill the memory. And it writes a frame's header together with its
// body: each write to a virtio-serial port costs an exit to the host.
type framed struct {
	rw    io.ReadWriteCloser
	frame []byte // the header of a data frame until its body comes, else empty

	header [frameHeader]byte // of the frame being read
	have   int               // bytes of it
	body   uint32            // bytes left of its body
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

// Write is called by one goroutine, with a header or with a body.
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

// accept returns the next stream of the peer, or why there will be none.
func accept(mux *yamux.Session) (*yamux.Stream, error) {
	stream, err := mux.AcceptStream()
	// A stream that came just before the end hides the cause of the end.
	for tries := muxConfig().AcceptBacklog; errors.Is(err, yamux.ErrSessionShutdown) && tries > 0; tries-- {
		stream, err = mux.AcceptStream()
	}
	return stream, noEOF(err)
}
