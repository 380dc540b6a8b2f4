package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/gofrs/flock"
)

// A repository is the checkout that the program was started in.
type repository struct {
	dir    string
	head   string // the commit
	source string // a commit of all that is there now, committed or not: what is tested
}

// openRepository looks what there is, and keeps other runs of this checkout from taking
// our trees away until unlock.
func openRepository(ctx context.Context) (r repository, unlock func(), err error) {
	if r.dir, err = git(ctx, ".", "rev-parse", "--show-toplevel"); err != nil {
		return r, nil, err
	}
	if unlock, err = r.lock(); err != nil {
		return r, nil, err
	}
	if r.head, err = git(ctx, r.dir, "rev-parse", "HEAD"); err == nil {
		r.source, err = r.snapshot(ctx)
	}
	if err != nil {
		unlock()
	}
	return r, unlock, err
}

func (r repository) lock() (unlock func(), err error) {
	path := filepath.Join(r.dir, "build", "mutants.lock")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	lock := flock.New(path)
	ours, err := lock.TryLock()
	if err == nil && !ours {
		err = errors.New("mutants are being tried in this checkout already")
	}
	return func() { _ = lock.Close() }, err
}

// snapshot makes a commit of all files but the ignored ones. It has an index of its own,
// so the checkout's stays as it is, and the commit is on no branch.
func (r repository) snapshot(ctx context.Context) (string, error) {
	index := filepath.Join(r.dir, "build", "mutants.index")
	defer os.Remove(index)
	env := []string{"GIT_INDEX_FILE=" + index}
	if _, err := output(ctx, r.dir, env, "git", "add", "--all"); err != nil {
		return "", err
	}
	files, err := output(ctx, r.dir, env, "git", "write-tree")
	if err != nil {
		return "", err
	}
	return git(ctx, r.dir, "-c", "user.name=mutants", "-c", "user.email=mutants@localhost",
		"commit-tree", files, "-p", r.head, "-m", "what the mutants are tried on")
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	return output(ctx, dir, nil, "git", args...)
}

// output runs a program in dir, with more in its environment, and returns what it prints.
func output(ctx context.Context, dir string, env []string, program string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, program, args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	var words bytes.Buffer
	c.Stderr = &words
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, words.String())
	}
	return strings.TrimSpace(string(out)), err
}

// A tree is a worktree of the source, which one worker breaks and mends again.
type tree struct{ dir, tags string }

// worktrees is held while git's list of worktrees changes: prune takes away what add has just
// begun.
var worktrees sync.Mutex

// tree makes worktree number n, in place of one that an earlier run has left.
func (r repository) tree(ctx context.Context, n int, tags string) (tree, error) {
	t := tree{filepath.Join(r.dir, "build", fmt.Sprintf("mutants-%d", n)), tags}
	if err := r.remove(ctx, t); err != nil {
		return t, err
	}
	worktrees.Lock()
	defer worktrees.Unlock()
	_, err := git(ctx, r.dir, "worktree", "add", "--detach", t.dir, r.source)
	return t, err
}

// remove takes a worktree away, if it is there.
func (r repository) remove(ctx context.Context, t tree) error {
	if err := os.RemoveAll(t.dir); err != nil {
		return err
	}
	worktrees.Lock()
	defer worktrees.Unlock()
	_, err := git(context.WithoutCancel(ctx), r.dir, "worktree", "prune")
	return err
}

// with does what do does, while the mutant is in the tree.
func (t tree) with(m Mutant, do func() error) error {
	path := filepath.Join(t.dir, m.File)
	whole, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	broken, err := m.apply(whole)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, broken, 0); err != nil {
		return err
	}
	return errors.Join(do(), os.WriteFile(path, whole, 0))
}

// apply takes the defence out of the text of its file.
func (m Mutant) apply(text []byte) ([]byte, error) {
	if n := bytes.Count(text, []byte(m.Old)); n != 1 {
		return nil, fmt.Errorf("%s has the text to be replaced %d times, want once", m.File, n)
	}
	if m.Old == m.New {
		return nil, errors.New("the mutant changes nothing")
	}
	return bytes.Replace(text, []byte(m.Old), []byte(m.New), 1), nil
}
