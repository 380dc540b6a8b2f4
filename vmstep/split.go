package vmstep

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/jobspec"
)

// A CommandLine is what a user typed behind slurm-v-run.
type CommandLine struct {
	Distribution string // "block" or "cyclic"
	Launcher     string // "srun" or "ssh"
	Start        bool   // only start the VMs
	NoWait       bool   // for an IVShmem device
	Help         bool
	Version      bool

	Srun    []string // options for srun, as typed
	Program []string // the program and its arguments

	given map[string]string // options by long name, the last value of each
}

// A UsageError is a command line that cannot be run.
type UsageError struct{ Reason string }

func (e *UsageError) Error() string { return e.Reason }

func usagef(format string, args ...any) error {
	return &UsageError{fmt.Sprintf(format, args...)}
}

// Given returns the value of an option and whether it was on the command
// line. Options without value have the value "".
func (c CommandLine) Given(option string) (string, bool) {
	value, ok := c.given[option]
	return value, ok
}

// own are slurm-v-run's options.
var own = map[string]argument{
	"vm-distribution": requiredValue,
	"launcher":        requiredValue,
	"start":           noValue,
	"no-wait":         noValue,
	"help":            noValue,
	"version":         noValue,
}

// Split finds in the words behind slurm-v-run its own options, those of srun and
// the program. Help returns the text of srun --help; it is asked only for an
// option that is not in the table.
func Split(words []string, help func() string) (CommandLine, error) {
	c := CommandLine{Distribution: "block", Launcher: "srun", given: map[string]string{}}
	s := splitter{line: &c, rest: words, help: help}
	if err := s.run(); err != nil {
		return c, err
	}
	return c, c.check()
}

type splitter struct {
	line *CommandLine
	rest []string
	help func() string
}

// run takes options until the first word that is none: srun does not look for
// options behind the program either.
func (s *splitter) run() error {
	for len(s.rest) > 0 {
		word := s.rest[0]
		var err error
		switch {
		case word == "--":
			s.line.Program = s.rest[1:]
			return nil
		case strings.HasPrefix(word, "--"):
			err = s.long(word)
		case len(word) > 1 && word[0] == '-':
			err = s.short(word)
		default:
			s.line.Program = s.rest
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// long takes an option of the form --name, --name=value or --name value.
func (s *splitter) long(word string) error {
	name, value, joined := strings.Cut(word[2:], "=")
	arg, mine := own[name]
	if !mine {
		var err error
		if name, arg, err = s.lookup(name); err != nil {
			return err
		}
	}
	taken := 1
	if arg == requiredValue && !joined {
		if len(s.rest) < 2 {
			return usagef("--%s needs a value", name)
		}
		value, taken = s.rest[1], 2
	}
	if mine {
		if arg == noValue && joined {
			return usagef("--%s takes no value", name)
		}
		s.rest = s.rest[taken:]
		return s.line.setOwn(name, value)
	}
	s.pass(name, value, taken)
	return nil
}

// lookup returns the full name of an srun option and whether it has a value.
func (s *splitter) lookup(name string) (string, argument, error) {
	if full, ok := complete(srunLong, name); ok {
		return full, srunLong[full], nil
	}
	described := parseHelp(s.help())
	if full, ok := complete(described, name); ok {
		return full, described[full], nil
	}
	return "", noValue, usagef("--%s is no option of slurm-v-run or srun; see slurm-v-run --help and srun --help", name)
}

// short takes a word of one-letter options, the last of which may have a value.
func (s *splitter) short(word string) error {
	for i := 1; i < len(word); i++ {
		name, ok := srunShort[word[i]]
		if !ok {
			return usagef("-%c is no option of srun; see srun --help", word[i])
		}
		switch srunLong[name] {
		case optionalValue:
			s.pass(name, word[i+1:], 1)
			return nil
		case requiredValue:
			return s.shortValue(word, i, name)
		}
		switch name {
		case "help":
			s.line.Help = true
		case "version":
			s.line.Version = true
		}
		s.line.given[name] = ""
	}
	s.line.Srun = append(s.line.Srun, word)
	s.rest = s.rest[1:]
	return nil
}

func (s *splitter) shortValue(word string, i int, name string) error {
	if i+1 < len(word) {
		s.pass(name, word[i+1:], 1)
		return nil
	}
	if len(s.rest) < 2 {
		return usagef("-%c (--%s) needs a value", word[i], name)
	}
	s.pass(name, s.rest[1], 2)
	return nil
}

// pass hands the next words to srun as they are.
func (s *splitter) pass(name, value string, words int) {
	s.line.given[name] = value
	s.line.Srun = append(s.line.Srun, s.rest[:words]...)
	s.rest = s.rest[words:]
}

func (c *CommandLine) setOwn(name, value string) error {
	c.given[name] = value
	switch name {
	case "vm-distribution":
		c.Distribution = value
		return oneOf(name, value, "block", "cyclic")
	case "launcher":
		c.Launcher = value
		return oneOf(name, value, "srun", "ssh")
	case "start":
		c.Start = true
	case "no-wait":
		c.NoWait = true
	case "help":
		c.Help = true
	case "version":
		c.Version = true
	}
	return nil
}

func oneOf(option, value string, allowed ...string) error {
	if !slices.Contains(allowed, value) {
		return usagef("--%s: %q is not one of %s", option, value, strings.Join(allowed, ", "))
	}
	return nil
}

// refused are options of srun that cannot work here, and what to do instead.
var refused = map[string]string{
	"het-group":         "VMs are not available in heterogeneous jobs",
	"pack-group":        "VMs are not available in heterogeneous jobs",
	"multi-prog":        "start the programs with one slurm-v-run each",
	"no-allocate":       "the VMs belong to an allocation",
	"pty":               "use slurmv exec -t for a terminal in a VM",
	"bcast":             "copy the program to a directory which the VMs mount",
	"container":         "the program already has a machine of its own",
	"external-launcher": "use --launcher=ssh to run your own mpirun",
	"usage":             "see slurm-v-run --help",
}

// mpiruns are options of what mpirun decides, not srun, or of a step that cannot
// be mpirun's.
var mpiruns = strings.Fields(`cpu-bind cpus-per-task distribution exclude exclusive mpi nodefile nodelist nodes ntasks
	ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket ntasks-per-tres overcommit relative spread-job
	use-min-nodes vm-distribution`)

// checkMpirun refuses options which would be lost on the one task that runs
// mpirun.
func (c CommandLine) checkMpirun() error {
	if c.Launcher != "ssh" {
		return nil
	}
	for _, option := range mpiruns {
		if _, ok := c.given[option]; ok {
			return usagef("--%s does not work with --launcher=ssh: mpirun decides which tasks run where, so give it the options for that, as in slurm-v-run --launcher=ssh mpirun -n 8 ./app", option)
		}
	}
	return nil
}

// check refuses what could only fail later, or in another way than it looks.
func (c CommandLine) check() error {
	if c.Help || c.Version {
		return nil
	}
	for _, option := range slices.Sorted(maps.Keys(refused)) {
		if _, ok := c.given[option]; ok {
			return usagef("--%s does not work with slurm-v-run: %s", option, refused[option])
		}
	}
	// The options which make the VMs: srun would take them without a word.
	for _, option := range jobspec.Options {
		if _, ok := c.given[option.Name]; ok {
			return usagef("--%s comes too late: give it to sbatch or salloc, which decide about the VMs of a job", option.Name)
		}
	}
	if mpi, ok := c.given["mpi"]; ok && mpi != "pmi2" && mpi != "none" {
		return usagef("--mpi=%s does not work with slurm-v-run: only pmi2 (the default) and none reach into a VM", mpi)
	}
	if slices.Contains(c.Program, ":") {
		return usagef("srun takes the argument \":\" for the start of another command: start each with a slurm-v-run of its own")
	}
	if err := c.checkMpirun(); err != nil {
		return err
	}
	switch {
	case c.Start && len(c.Program) > 0:
		return usagef("--start only starts the VMs: leave out %q, or leave out --start", c.Program[0])
	case !c.Start && len(c.Program) == 0:
		return usagef("no program to run; usage: slurm-v-run [srun options] program [arguments]")
	}
	return nil
}
