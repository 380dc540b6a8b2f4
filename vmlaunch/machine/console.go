package machine

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"sync/atomic"
)

// A Console is the serial console of one VM. Its output is kept in a bounded log and passed
// on to its followers.
type Console struct {
	log      *logFile
	conn     io.ReadWriteCloser
	panicked func(why string)
	telling  atomic.Bool // panicked is running

	mu        sync.Mutex
	followers map[chan []byte]struct{}
	closed    bool
}

// openConsole records the output of a console to path. It calls panicked if the output says that the kernel has panicked,
// and not again while panicked runs.
func openConsole(conn io.ReadWriteCloser, path string, panicked func(why string)) (*Console, error) {
	log, err := createLog(path)
	if err != nil {
		return nil, err
	}
	c := &Console{log: log, conn: conn, panicked: panicked, followers: map[chan []byte]struct{}{}}
	go c.record()
	return c, nil
}

func (c *Console) record() {
	var last lastWords
	buffer := make([]byte, 4096)
	for {
		n, err := c.conn.Read(buffer)
		if n > 0 {
			c.spread(append([]byte(nil), buffer[:n]...))
			c.tell(last.in(buffer[:n]))
		}
		if err != nil {
			c.end()
			return
		}
	}
}

// tell does not wait for panicked, so that the recording goes on.
func (c *Console) tell(why string) {
	if why == "" || !c.telling.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer c.telling.Store(false)
		c.panicked(why)
	}()
}

// panicMark begins the reason in Linux's last message; see panic() in kernel/panic.c.
const panicMark = "Kernel panic - not syncing: "

// maxLine bounds how much of a line is looked at, in bytes. The message comes at its beginning.
const maxLine = 256

// lastWords looks for Linux's last message in the output of a console. Its value is the line that has not ended.
type lastWords []byte

// in returns the reason if p ends a line with the message; "" if it does not.
func (l *lastWords) in(p []byte) (why string) {
	for line := range bytes.Lines(p) {
		*l = append(*l, line[:min(len(line), maxLine-len(*l))]...)
		if line[len(line)-1] != '\n' {
			break
		}
		if _, reason, found := strings.Cut(string(*l), panicMark); found && why == "" {
			why = strings.TrimSpace(reason)
		}
		*l = (*l)[:0]
	}
	return why
}

// spread never waits: a follower that is too slow loses output, as on a real serial line.
func (c *Console) spread(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.log.Write(p)
	for f := range c.followers {
		select {
		case f <- p:
		default:
		}
	}
}

func (c *Console) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for f := range c.followers {
		close(f)
		delete(c.followers, f)
	}
	_ = c.log.Close()
}

// Close ends the recording.
func (c *Console) Close() error { return c.conn.Close() }

// CopyTo writes the console's past output to w. If follow is set, it goes on with new
// output until w fails or the VM is gone.
func (c *Console) CopyTo(w io.Writer, follow bool) error {
	past, live, err := c.subscribe()
	if err != nil {
		return err
	}
	defer c.unsubscribe(live)
	if _, err := w.Write(past); err != nil || !follow {
		return err
	}
	for p := range live {
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	return nil
}

func (c *Console) subscribe() (past []byte, live chan []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	past, err = ReadLog(c.log.path)
	live = make(chan []byte, 256)
	if c.closed {
		close(live)
		return past, live, err
	}
	c.followers[live] = struct{}{}
	return past, live, err
}

func (c *Console) unsubscribe(live chan []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.followers, live)
}

// TypeFrom sends a person's input from r to the console.
func (c *Console) TypeFrom(r io.Reader) error {
	_, err := io.Copy(c.conn, r)
	return err
}
