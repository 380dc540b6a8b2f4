package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// workers is how many trees are at work: a test that waits leaves the CPU to another.
const workers = 2

// A result is how the trial of a mutant ended: well if err is nil.
type result struct {
	mutant Mutant
	err    error
	took   time.Duration
}

// errSurvived says that the test passes without the defence. Every other error of a
// trial means that the trial proves nothing.
var errSurvived = errors.New("its test passes without the defence")

func (r result) verdict() string {
	switch {
	case r.err == nil:
		return "killed"
	case errors.Is(r.err, errSurvived):
		return "SURVIVED"
	}
	return "DEFECT"
}

// trials tries the mutants and sends the results. What is tested in one package is
// tried by one worker: packages may have tests that only one process may run at a time.
func (r repository) trials(ctx context.Context, tags string, mutants []Mutant) <-chan result {
	groups, results := make(chan []Mutant), make(chan result)
	go func() {
		defer close(groups)
		for _, g := range byPackage(mutants) {
			groups <- g
		}
	}()
	var all sync.WaitGroup
	for n := range workers {
		all.Go(func() { r.work(ctx, n, tags, groups, results) })
	}
	go func() {
		all.Wait()
		close(results)
	}()
	return results
}

// byPackage groups mutants; those with the longest trials are first.
func byPackage(mutants []Mutant) [][]Mutant {
	groups := map[string][]Mutant{}
	for _, m := range mutants {
		groups[m.Package] = append(groups[m.Package], m)
	}
	return slices.SortedFunc(maps.Values(groups), func(a, b []Mutant) int {
		if c := strings.Compare(string(a[0].kind()), string(b[0].kind())); c != 0 && (a[0].kind() == Cluster || b[0].kind() == Cluster) {
			return c
		}
		return len(b) - len(a)
	})
}

// work tries group after group in a tree of its own.
func (r repository) work(ctx context.Context, n int, tags string, groups <-chan []Mutant, results chan<- result) {
	t, noTree := r.tree(ctx, n, tags)
	defer func() { _ = r.remove(ctx, t) }() // the next run does it otherwise
	for group := range groups {
		e := newTester(t, group[0])
		whole, err := e.run(ctx, testsOf(group))
		for _, m := range group {
			began := time.Now()
			failed := errors.Join(noTree, err, mustPass(m, whole))
			if failed == nil {
				failed = t.with(m, func() error { return e.mustFail(ctx, m) })
			}
			results <- result{m, failed, time.Since(began)}
		}
		e.end()
	}
}

func testsOf(group []Mutant) []string {
	names := map[string]bool{}
	for _, m := range group {
		names[m.Test] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// mustPass looks in what the tests said of the whole source.
func mustPass(m Mutant, said string) error {
	if got := outcomeOf(m.Test, said); got != "PASS" {
		return fmt.Errorf("%s without any mutant: %s\n%s", m.Test, got, tail(said))
	}
	return nil
}

// mustFail checks that the mutant's test fails, by its own judgement.
func (e *tester) mustFail(ctx context.Context, m Mutant) error {
	said, err := e.run(ctx, []string{m.Test})
	switch got := outcomeOf(m.Test, said); {
	case err != nil:
		return err
	case got == "PASS":
		return errSurvived
	case got == "FAIL" && !strings.Contains(said, "panic: test timed out after"):
		return nil
	default:
		return fmt.Errorf("%s did not come to an end: %s\n%s", m.Test, got, tail(said))
	}
}

// outcomeOf finds what a test's output says of it.
func outcomeOf(name, said string) string {
	found := regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): ` + regexp.QuoteMeta(name) + ` \(`).FindStringSubmatch(said)
	if found == nil {
		return "no result"
	}
	return found[1]
}

// tail is the end of a long text.
func tail(text string) string { return text[max(0, len(text)-3000):] }

// A tester runs tests of one package in a tree.
type tester struct {
	tree
	pkg      string
	prepare  func(ctx context.Context) error // before each run; nil if there is nothing to do
	end      func()
	env      []string
	patience string
}

func newTester(t tree, m Mutant) *tester {
	e := &tester{tree: t, pkg: m.Package, end: func() {}, patience: "10m"}
	if m.kind() == Cluster {
		e.onCluster()
	}
	return e
}

// run builds the tests of the package as it is now, and runs some. That a test fails is
// no error.
func (e *tester) run(ctx context.Context, names []string) (said string, err error) {
	program := filepath.Join(e.dir, "build", "mutant.test")
	build := []string{"test", "-c", "-tags", e.tags, "-o", program, "./" + e.pkg}
	if _, err := output(ctx, e.dir, nil, "go", build...); err != nil {
		return "", fmt.Errorf("does not build: %w", err)
	}
	if e.prepare != nil {
		if err := e.prepare(ctx); err != nil {
			return "", err
		}
	}
	c := exec.CommandContext(ctx, program, "-test.v", "-test.timeout", e.patience, "-test.run", pattern(names))
	c.Dir, c.Env = filepath.Join(e.dir, e.pkg), append(os.Environ(), e.env...)
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		err = nil
	}
	return string(out), err
}

// pattern matches the tests of these names, and no others. Where all are subtests of
// one test, only those.
func pattern(names []string) string {
	if len(names) == 1 {
		parts := strings.Split(names[0], "/")
		for i, p := range parts {
			parts[i] = "^" + regexp.QuoteMeta(p) + "$"
		}
		return strings.Join(parts, "/")
	}
	var tops []string
	for _, n := range names {
		top, _, _ := strings.Cut(n, "/")
		tops = append(tops, top)
	}
	slices.Sort(tops)
	return "^(" + strings.Join(slices.Compact(tops), "|") + ")$"
}
