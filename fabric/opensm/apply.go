package opensm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/durable"
)

// The files beside partitions.conf. The lock is not empty while OpenSM has not been told of
// the last change.
const (
	lockSuffix = ".slurm-v.lock"
	newSuffix  = ".slurm-v.new"
)

// Apply changes the jobs' partitions in file, which is OpenSM's partitions.conf, and tells
// the OpenSM whose process id is in pidFile to read it. With pidFile "" that is every OpenSM
// on this host. Nothing is written, and OpenSM is not told, if change changes nothing.
//
// The caller has the rights to replace the file and to signal OpenSM. A crash, or OpenSM's
// refusal of the signal, leaves a note in the lock file, and the next Apply tells OpenSM.
// If no OpenSM runs, note says so, also the next time, until one has been told. That is no
// error here: OpenSM reads the file when it starts.
func Apply(ctx context.Context, file, pidFile string, change func(Partitions) error) (note string, err error) {
	if note, err = apply(ctx, file, pidFile, change); err != nil {
		return "", fmt.Errorf("change the partitions of OpenSM in %s: %w", file, err)
	}
	return note, nil
}

func apply(ctx context.Context, file, pidFile string, change func(Partitions) error) (string, error) {
	file, err := filepath.EvalSymlinks(file) // a rename would replace the link
	if errors.Is(err, fs.ErrNotExist) {
		return "", withoutFile(err, change)
	}
	if err != nil {
		return "", err
	}
	lock, err := durable.Lock(ctx, file+lockSuffix, os.O_CREATE)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := edit(file, change); err != nil {
		return "", err
	}
	return tellOnce(file, pidFile)
}

// withoutFile makes the change where there is no file: nothing can be removed there.
func withoutFile(err error, change func(Partitions) error) error {
	p := Partitions{}
	if err := change(p); err != nil || len(p) == 0 {
		return err
	}
	return fmt.Errorf("%w; %w", err, errNoSite)
}

// edit makes the change in the file, and leaves a note if there was one to make.
func edit(file string, change func(Partitions) error) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	p, err := parse(string(text))
	if err != nil {
		return err
	}
	if err := change(p); err != nil {
		return err
	}
	next, err := p.Put(string(text))
	if err != nil || next == string(text) {
		return err
	}
	if err := leaveNote(file); err != nil {
		return err
	}
	return replace(file, next)
}

// leaveNote says on disk that OpenSM has to be told, before it has to be.
func leaveNote(file string) error {
	lock, err := os.OpenFile(file+lockSuffix, os.O_WRONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	_, err = lock.WriteString("OpenSM has to be told\n")
	if err == nil {
		err = lock.Sync()
	}
	return errors.Join(err, lock.Close())
}

// tellOnce tells OpenSM if a note says so.
func tellOnce(file, pidFile string) (note string, err error) {
	lock := file + lockSuffix
	if info, err := os.Stat(lock); err != nil || info.Size() == 0 {
		return "", err
	}
	if note, err = tell(pidFile); err != nil || note != "" {
		return note, err
	}
	return "", os.Truncate(lock, 0)
}

// replace makes text the whole content of a file. The file keeps its owner and its mode.
func replace(file, text string) (err error) {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	next, err := os.OpenFile(file+newSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(next.Name()))
		}
	}()
	if err := errors.Join(fill(next, text, info), next.Close()); err != nil {
		return err
	}
	if err := os.Rename(next.Name(), file); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(file))
}

func fill(next *os.File, text string, like fs.FileInfo) error {
	if owner, ok := like.Sys().(*syscall.Stat_t); ok {
		if err := next.Chown(int(owner.Uid), int(owner.Gid)); err != nil {
			return fmt.Errorf("keep the owner: %w; run it as root or as the owner", err)
		}
	}
	if err := next.Chmod(like.Mode().Perm()); err != nil {
		return err
	}
	if _, err := next.WriteString(text); err != nil {
		return err
	}
	return next.Sync()
}
