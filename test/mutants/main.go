package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// options are those of the command.
type options struct {
	names  *regexp.Regexp
	kind   Kind
	sample int
	tags   string
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	names := flags.String("run", "", "only mutants whose names match this `regexp`")
	kind := flags.String("kind", "", "only mutants of this `kind`: unit, slow or cluster")
	flags.IntVar(&o.sample, "sample", 0, "only so `many` of the kind unit, chosen by the commit")
	flags.StringVar(&o.tags, "tags", "", "the build `tags` of all tests")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.kind = Kind(*kind)
	if o.sample > 0 {
		o.kind = Unit
	}
	o.names, err = regexp.Compile(*names)
	return o, err
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	o, err := parse(args)
	if err != nil {
		return err
	}
	repo, unlock, err := openRepository(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	chosen := o.choose(all, repo.head)
	if len(chosen) == 0 {
		return errors.New("there is no such mutant")
	}
	return judge(repo.trials(ctx, o.tags, chosen))
}

// choose returns the mutants that are wanted when commit is tested.
func (o options) choose(from []Mutant, commit string) []Mutant {
	chosen := slices.DeleteFunc(slices.Clone(from), func(m Mutant) bool {
		return !o.names.MatchString(m.Name) || o.kind != "" && m.kind() != o.kind
	})
	if o.sample > 0 {
		return sampled(chosen, o.sample, commit)
	}
	return chosen
}

// sampled returns n of the mutants: always the same for a commit, and all of them have
// their turn as commits go by.
func sampled(from []Mutant, n int, commit string) []Mutant {
	rank := func(m Mutant) string {
		sum := sha256.Sum256([]byte(commit + " " + m.Name))
		return string(sum[:])
	}
	from = slices.SortedFunc(slices.Values(from), func(a, b Mutant) int { return strings.Compare(rank(a), rank(b)) })
	return from[:min(n, len(from))]
}

// judge prints the table, a line whenever a result is there, and returns an error if
// not all mutants were killed.
func judge(results <-chan result) error {
	var wrong []result
	killed := 0
	for r := range results {
		fmt.Printf("%-10s %4.0f s  %-40s %s %s\n", r.verdict(), r.took.Seconds(), r.mutant.Name, r.mutant.Package, r.mutant.Test)
		if r.err == nil {
			killed++
		} else {
			wrong = append(wrong, r)
		}
	}
	for _, r := range wrong {
		fmt.Printf("\n=== %s: %v\n%s\n%s:\n- %s\n+ %s\n", r.mutant.Name, r.err, r.mutant.Defence, r.mutant.File, r.mutant.Old, r.mutant.New)
	}
	fmt.Printf("\n%d of %d mutants killed\n", killed, killed+len(wrong))
	if len(wrong) > 0 {
		return fmt.Errorf("%d were not", len(wrong))
	}
	return nil
}
