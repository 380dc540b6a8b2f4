package agent

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"sync"
)

// A kernelLog writes each record as one line to the kernel's log, which also reaches the
// console. If the kernel's log cannot be opened, it writes to stderr.
type kernelLog struct {
	slog.Handler // writes to line
	mu           *sync.Mutex
	line         *bytes.Buffer
	out          io.Writer
	priorities   bool
}

// KernelLog returns the log of the guest agent: each record is a line of the kernel's log.
// device is the kernel's log, /dev/kmsg.
func KernelLog(device string) slog.Handler { return newKernelLog(device) }

func newKernelLog(device string) *kernelLog {
	line := new(bytes.Buffer)
	text := slog.NewTextHandler(line, &slog.HandlerOptions{ReplaceAttr: plain})
	k := &kernelLog{Handler: text, mu: new(sync.Mutex), line: line, out: os.Stderr}
	if f, err := os.OpenFile(device, os.O_WRONLY, 0); err == nil {
		k.out, k.priorities = f, true
	}
	return k
}

// plain leaves out time and level, which the kernel's log has already.
func plain(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
		return slog.Attr{}
	}
	return a
}

// Handle writes each record with a single write, because the kernel makes a line of each
// write.
func (k *kernelLog) Handle(ctx context.Context, r slog.Record) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.line.Reset()
	if k.priorities {
		k.line.WriteString(priority(r.Level))
	}
	k.line.WriteString("slurmv-guest: ")
	if err := k.Handler.Handle(ctx, r); err != nil {
		return err
	}
	_, err := k.out.Write(k.line.Bytes())
	return err
}

// priority is the syslog priority of a level, with facility daemon.
func priority(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return "<27>"
	case level >= slog.LevelWarn:
		return "<28>"
	}
	return "<30>"
}
