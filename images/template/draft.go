package template

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Draft is a template that is being made.
type Draft struct {
	Template        // in a directory of its own until it is published
	final    string // where it will be
	store    *Store
	unlock   func()
}

// Draft begins a template; it waits while another one of the same owner is being made.
// write is called with its directory before that exists. Name tells drafts apart.
func (s *Store) Draft(ctx context.Context, whose Whose, shape Shape, name string, write func(dir string) error) (*Draft, error) {
	d, err := s.draft(ctx, whose, shape, name, write)
	if err != nil {
		return nil, fmt.Errorf("begin a template: %w", err)
	}
	return d, nil
}

func (s *Store) draft(ctx context.Context, whose Whose, shape Shape, name string, write func(dir string) error) (*Draft, error) {
	unlock, err := s.lock(ctx, filepath.Join(string(whose), "making.lock"))
	if err != nil {
		return nil, err
	}
	d := &Draft{store: s, final: s.place(whose, shape.Key()), unlock: unlock}
	d.Template = Template{Dir: s.place(whose, name+draftSuffix), Whose: whose, About: About{Shape: shape, Created: time.Now().UTC()}}
	err = write(d.Dir)
	if err == nil {
		err = errors.Join(os.RemoveAll(d.Dir), os.Mkdir(d.Dir, 0o711))
	}
	if err == nil {
		err = os.Mkdir(d.Nothing(), 0o755)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Final is the template as it will be when it is published.
func (d *Draft) Final() Template {
	t := d.Template
	t.Dir = d.final
	return t
}

// Exists reports whether somebody has made the template since it was looked for.
func (d *Draft) Exists() bool {
	_, err := os.Stat(d.final)
	return err == nil
}

// ShareLike lets those read the disks who may read the file at path: they are of root's
// making then, but show what that file does.
func (d *Draft) ShareLike(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	gid := info.Sys().(*syscall.Stat_t).Gid
	for _, file := range []string{d.Disk(), d.Seed()} {
		if err := errors.Join(os.Chown(file, 0, int(gid)), os.Chmod(file, 0o600|info.Mode().Perm()&0o044)); err != nil {
			return fmt.Errorf("share a template: %w", err)
		}
	}
	return nil
}

// Close lets others of the owner make templates, and removes what was not published.
func (d *Draft) Close() error {
	defer d.unlock()
	return os.RemoveAll(d.Dir)
}

// Publish puts the template, whose files are complete, where others find it, once it is on
// disk. Templates that were not used for longest make room for it.
func (d *Draft) Publish(ctx context.Context) error {
	if err := d.publish(ctx); err != nil {
		return fmt.Errorf("keep template: %w", err)
	}
	return nil
}

func (d *Draft) publish(ctx context.Context) error {
	text, err := json.MarshalIndent(d.About, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(d.Dir, aboutFile), text, 0o600); err != nil {
		return err
	}
	if err := syncAll(d.Dir); err != nil {
		return err
	}
	unlock, err := d.store.lock(ctx, "lock")
	if err != nil {
		return err
	}
	defer unlock()
	size, err := allocated(d.Dir)
	if err != nil {
		return err
	}
	if err := d.store.makeRoom(size); err != nil {
		return err
	}
	if err := os.Rename(d.Dir, d.final); err != nil {
		return err
	}
	return syncFile(filepath.Dir(d.final))
}

// makeRoom removes templates until one of size bytes fits.
func (s *Store) makeRoom(size int64) error {
	if size > s.limit {
		return fmt.Errorf("it has %d MiB, and all together may have %d (warm.size)", size>>20, s.limit>>20)
	}
	all, err := s.List()
	sum := size
	for _, t := range all {
		sum += t.Bytes
	}
	for _, t := range all {
		if err != nil || sum <= s.limit {
			return err
		}
		switch e := s.remove(t); {
		case e == nil:
			sum -= t.Bytes
		case !errors.Is(e, ErrInUse):
			err = e
		}
	}
	if err == nil && sum > s.limit {
		err = fmt.Errorf("%w, and they fill what all together may have: %d MiB (warm.size)", ErrInUse, s.limit>>20)
	}
	return err
}

// syncAll has the files of a directory written to disk, and then itself.
func syncAll(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			err = errors.Join(err, syncFile(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(err, syncFile(dir))
}

func syncFile(path string) error {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
