package template

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/slurm-v/slurm-v/internal/durable"
	"github.com/slurm-v/slurm-v/internal/sparse"
)

// A Draft is a template in the making.
type Draft struct {
	Template        // in a directory of its own until it is published
	final    string // directory of the published template
	store    *Store
	unlock   func()
}

// Draft begins a template. It waits while another template of the same owner is being made.
// It calls write with the draft's directory before it makes the directory. name
// distinguishes drafts.
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
	d := &Draft{store: s, final: s.dirOf(whose, shape.Key()), unlock: unlock}
	d.Template = Template{Dir: s.dirOf(whose, name+draftSuffix), Whose: whose, About: About{Shape: shape, Created: time.Now().UTC()}}
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

// Final is the template as it will be once it is published.
func (d *Draft) Final() Template {
	t := d.Template
	t.Dir = d.final
	return t
}

// Exists reports whether another process has meanwhile made the template.
func (d *Draft) Exists() bool {
	_, err := os.Stat(filepath.Join(d.final, aboutFile))
	return err == nil
}

// TakeMemory moves the guest's memory out of the state that libvirt has saved, into a file
// that uid can map. The memory is the block of that name in the stream, and is renamed to
// name. It must have the size in the template's shape.
func (d *Draft) TakeMemory(block, name string, uid int) error {
	saved, err := os.Open(d.Saved())
	if err != nil {
		return err
	}
	defer saved.Close()
	head, err := ReadSaveFile(saved)
	if err != nil {
		return err
	}
	memory, err := create(d.Memory(), uid)
	if err != nil {
		return err
	}
	defer memory.Close()
	rest, err := create(d.Saved()+".rest", 0)
	if err != nil {
		return err
	}
	defer rest.Close()
	if _, err := head.WriteTo(rest); err != nil {
		return err
	}
	if err := split(rest, saved, ramBlock{Block: block, Name: name, Size: d.Shape.Memory << 20, Pages: memory}); err != nil {
		return err
	}
	return os.Rename(rest.Name(), d.Saved())
}

// CopyFrom fills the draft with the files of a template of root's, for uid.
func (d *Draft) CopyFrom(ctx context.Context, t Template, uid int) error {
	for path, owner := range map[string]int{savedFile: 0, memoryFile: uid, diskFile: uid, seedFile: uid} {
		if err := copyFile(ctx, filepath.Join(d.Dir, path), filepath.Join(t.Dir, path), owner); err != nil {
			return fmt.Errorf("copy template %s: %w", filepath.Base(t.Dir), err)
		}
	}
	return nil
}

// create makes a file in a directory of root's. Only uid can open the file.
func create(path string, uid int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil && uid != 0 {
		err = file.Chown(uid, -1)
	}
	return file, err
}

// copyFile makes a copy that belongs to uid.
func copyFile(ctx context.Context, to, from string, uid int) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	file, err := create(to, uid)
	if err != nil {
		return err
	}
	_, err = sparse.Copy(ctx, file, source, func(int64) {})
	return errors.Join(err, file.Close())
}

// Close lets other jobs of the owner make templates, and removes the draft's files unless
// they were published.
func (d *Draft) Close() error {
	defer d.unlock()
	return os.RemoveAll(d.Dir)
}

// Publish moves the template, whose files are complete, to where other jobs find it, once
// it is on disk. It removes the longest unused templates if it needs their room.
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
	if err := durable.SyncTree(d.Dir); err != nil {
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
	// A spoilt template may have the final name. VMs that were restored from it go on.
	if err := errors.Join(os.RemoveAll(d.final), os.Rename(d.Dir, d.final)); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(d.final))
}

// makeRoom removes templates until a template of size bytes fits.
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
		case !errors.Is(e, errInUse):
			err = e
		}
	}
	if err == nil && sum > s.limit {
		err = fmt.Errorf("%w, and they fill what all together may have: %d MiB (warm.size)", errInUse, s.limit>>20)
	}
	return err
}
