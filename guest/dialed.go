package guest

import (
	"net"
	"sync"
	"time"
)

// dialed is a stream used as a network connection.
type dialed struct {
	*stream
	once sync.Once
}

func (d *dialed) CloseWrite() error {
	d.stream.CloseWrite()
	return nil
}

func (d *dialed) Close() error {
	d.once.Do(func() {
		d.Abandon()
		go d.Finish()
	})
	return nil
}

func (d *dialed) LocalAddr() net.Addr                { return d.raw.LocalAddr() }
func (d *dialed) RemoteAddr() net.Addr               { return d.raw.RemoteAddr() }
func (d *dialed) SetDeadline(t time.Time) error      { return d.raw.SetDeadline(t) }
func (d *dialed) SetReadDeadline(t time.Time) error  { return d.raw.SetReadDeadline(t) }
func (d *dialed) SetWriteDeadline(t time.Time) error { return d.raw.SetWriteDeadline(t) }
