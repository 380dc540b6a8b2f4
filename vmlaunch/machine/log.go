package machine

import (
	"errors"
	"io/fs"
	"os"
	"sync"
)

// maxLog bounds each of the two files of a log, in bytes.
const maxLog = 512 << 10

// A logFile is a file that forgets its beginning, so that a guest which floods its console does
// not fill the node's disk. At most one older part is kept beside path, as path.1.
type logFile struct {
	path string

	mu   sync.Mutex
	file *os.File
	size int
}

// createLog begins a log at path.
func createLog(path string) (*logFile, error) {
	l := &logFile{path: path}
	return l, l.open()
}

func (l *logFile) open() (err error) {
	l.size = 0
	l.file, err = os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|os.O_TRUNC, 0o600)
	return err
}

// Write appends p.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size > 0 && l.size+len(p) > maxLog {
		if err := l.turn(); err != nil {
			return 0, err
		}
	}
	n, err := l.file.Write(p)
	l.size += n
	return n, err
}

func (l *logFile) turn() error {
	if err := errors.Join(l.file.Close(), os.Rename(l.path, l.path+".1")); err != nil {
		return err
	}
	return l.open()
}

// Close closes the file.
func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}

// ReadLog returns the contents of the log at path, oldest first.
func ReadLog(path string) ([]byte, error) {
	older, err := os.ReadFile(path + ".1")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	newer, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return append(older, newer...), err
}
