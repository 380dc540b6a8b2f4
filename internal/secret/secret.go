// Package secret reads files with keys and passwords, and refuses those that others may
// know or may have written.
package secret

import (
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// MaxSize bounds such a file, in bytes.
const MaxSize = 16 << 10

// ReadFile returns the text of a file that nobody but its owner and its group can read, and
// nobody but its owner can write. The owner is root or this process's own user.
func ReadFile(path string) (string, error) {
	// A FIFO would block without O_NONBLOCK. For a file it changes nothing.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	if err := check(file); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(file, MaxSize+1))
	switch {
	case err != nil:
		return "", err
	case len(text) > MaxSize:
		return "", fmt.Errorf("%s is larger than %d bytes", path, MaxSize)
	}
	return string(text), nil
}

// check looks at the opened file: its name may soon be another's.
func check(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return fmt.Errorf("stat %s: %w", file.Name(), err)
	}
	return safe(file.Name(), info.Mode(), stat.Uid, uint32(os.Geteuid()))
}

// safe reports why a file with this mode and owner keeps no secret of a process of user
// self.
func safe(path string, mode fs.FileMode, owner, self uint32) error {
	switch {
	case !mode.IsRegular():
		return fmt.Errorf("%s is not a file", path)
	case owner != 0 && owner != self:
		return fmt.Errorf("%s belongs to user %d, who could change it: chown root %s", path, owner, path)
	case mode.Perm()&0o007 != 0:
		return fmt.Errorf("%s has the mode %#o, with which every user can open it: chmod 0640 %s, and replace the secret in it", path, mode.Perm(), path)
	case mode.Perm()&0o020 != 0:
		return fmt.Errorf("%s has the mode %#o, with which its group can change it: chmod 0640 %s", path, mode.Perm(), path)
	}
	return nil
}
