package template

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/durable"
	"github.com/slurm-v/slurm-v/journal"
)

// A Store has the templates of a node. Any number of processes may use it.
type Store struct {
	dir   string
	limit int64 // bytes
	state string
}

// The kinds of records in jobs' journals that protect directories of the store. The names
// of the records are the directories.
const (
	Use  = "template" // VMs of the job are, or may be, restored from the template
	Work = "draft"    // the job is making the draft
)

// Open returns the store below a node's state directory. limit bounds all templates
// together, in bytes.
func Open(state string, limit int64) *Store {
	return &Store{dir: filepath.Join(state, "templates"), limit: limit, state: state}
}

// ErrNone matches the error of [Store.Find] if there is no such template.
var ErrNone = errors.New("no template")

// A NoneError says why no template fits.
type NoneError struct{ Reason string }

func (e *NoneError) Error() string {
	if e.Reason == "" {
		return "this node has no template of the image"
	}
	return "the node's template of the image does not fit: " + e.Reason
}

// Is reports whether target is [ErrNone].
func (e *NoneError) Is(target error) bool { return target == ErrNone }

// Find returns the owner's template of the shape. It calls use while nobody can remove
// the template.
func (s *Store) Find(ctx context.Context, whose Whose, shape Shape, use func(Template) error) (Template, error) {
	unlock, err := s.lock(ctx, "lock")
	if err != nil {
		return Template{}, err
	}
	defer unlock()
	t, err := read(s.dirOf(whose, shape.Key()), whose)
	if errors.Is(err, fs.ErrNotExist) {
		return Template{}, &NoneError{s.explain(whose, shape)}
	}
	if err == nil {
		err = use(t)
	}
	if err == nil {
		err = touch(filepath.Join(t.Dir, aboutFile))
	}
	return t, err
}

// explain says why the owner's templates do not fit.
func (s *Store) explain(whose Whose, shape Shape) string {
	for _, t := range s.of(whose) {
		if why := shape.Differs(t.Shape); why != "" {
			return why
		}
	}
	return ""
}

// dirOf is the directory of the template with that key, whether it exists or not.
func (s *Store) dirOf(whose Whose, key string) string {
	return filepath.Join(s.dir, string(whose), key)
}

// touch makes the template the last used.
func touch(path string) error {
	now := time.Now()
	return os.Chtimes(path, now, now)
}

// read reads the description of the template in dir.
func read(dir string, whose Whose) (Template, error) {
	t := Template{Dir: dir, Whose: whose}
	path := filepath.Join(dir, aboutFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal(text, &t.About); err != nil {
		return t, fmt.Errorf("template %s: %w", dir, err)
	}
	if info, err := os.Stat(path); err == nil {
		t.Used = info.ModTime()
	}
	t.Bytes, err = allocated(dir)
	return t, err
}

// allocated is the size of the files in dir on disk, in bytes.
func allocated(dir string) (sum int64, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		var st unix.Stat_t
		if unix.Lstat(filepath.Join(dir, e.Name()), &st) == nil {
			sum += st.Blocks * 512
		}
	}
	return sum, err
}

// List returns all templates, the longest unused first.
func (s *Store) List() ([]Template, error) {
	owners, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list templates: %w", err)
	}
	var all []Template
	for _, owner := range owners {
		all = append(all, s.of(Whose(owner.Name()))...)
	}
	slices.SortFunc(all, func(a, b Template) int {
		return cmp.Or(a.Used.Compare(b.Used), strings.Compare(a.Dir, b.Dir))
	})
	return all, nil
}

// of lists the complete templates of one owner.
func (s *Store) of(whose Whose) (all []Template) {
	entries, _ := os.ReadDir(filepath.Join(s.dir, string(whose)))
	for _, e := range entries {
		if strings.Contains(e.Name(), ".") {
			continue // a draft, or a template that is being removed
		}
		if t, err := read(s.dirOf(whose, e.Name()), whose); err == nil {
			all = append(all, t)
		}
	}
	return all
}

// errInUse matches the error of [Store.Remove] if a job uses the template.
var errInUse = errors.New("a job has VMs from it")

// Remove removes a template, unless a job uses it.
func (s *Store) Remove(ctx context.Context, t Template) error {
	unlock, err := s.lock(ctx, "lock")
	if err != nil {
		return err
	}
	defer unlock()
	return s.remove(t)
}

// remove renames the template's directory before it removes it, so that nobody uses half of
// a template.
func (s *Store) remove(t Template) error {
	used, err := journal.Holds(s.state, Use, t.Dir)
	if err == nil && used {
		err = errInUse
	}
	if err != nil {
		return fmt.Errorf("remove template %s: %w", filepath.Base(t.Dir), err)
	}
	gone := t.Dir + goneSuffix
	if err := os.Rename(t.Dir, gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(gone)
}

// Spoil makes sure that Find does not return a template again from which no VM could be
// restored. [Store.Sweep] removes it once no job uses it.
func (s *Store) Spoil(ctx context.Context, t Template) error {
	unlock, err := s.lock(ctx, "lock")
	if err != nil {
		return err
	}
	defer unlock()
	gone := t.Dir + goneSuffix
	if err := os.Rename(filepath.Join(t.Dir, aboutFile), gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(gone)
}

// spoilt lists the directories of spoilt templates.
func (s *Store) spoilt() (all []string) {
	dirs, _ := filepath.Glob(filepath.Join(s.dir, "*", "*", savedFile))
	for _, saved := range dirs {
		dir := filepath.Dir(saved)
		_, err := os.Stat(filepath.Join(dir, aboutFile))
		if errors.Is(err, fs.ErrNotExist) && !strings.Contains(filepath.Base(dir), ".") {
			all = append(all, dir)
		}
	}
	return all
}

// Suffixes of directories that are not templates.
const (
	draftSuffix = ".draft"
	goneSuffix  = ".gone"
)

// Sweep removes directories that a crash has left half made or half removed, and spoilt
// templates, unless a job's journal names them.
func (s *Store) Sweep(ctx context.Context) error {
	unlock, err := s.lock(ctx, "lock")
	if err != nil {
		return err
	}
	defer unlock()
	gone, _ := filepath.Glob(filepath.Join(s.dir, "*", "*"+goneSuffix))
	drafts, _ := filepath.Glob(filepath.Join(s.dir, "*", "*"+draftSuffix))
	for kind, dirs := range map[string][]string{Work: drafts, Use: s.spoilt()} {
		for _, dir := range dirs {
			switch busy, e := journal.Holds(s.state, kind, dir); {
			case e != nil:
				err = errors.Join(err, e)
			case !busy:
				gone = append(gone, dir)
			}
		}
	}
	for _, dir := range gone {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// lock takes a lock of the store. The store's directories belong to root; users can only
// pass through them.
func (s *Store) lock(ctx context.Context, name string) (unlock func(), err error) {
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return nil, err
	}
	lock, err := durable.Lock(ctx, path, os.O_CREATE)
	if err != nil {
		return nil, err
	}
	return func() { _ = lock.Close() }, nil
}
