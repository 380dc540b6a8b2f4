package slurm

import (
	"path/filepath"
	"strings"
)

// A CommandLine is that of sbatch or salloc. Slurm tells plugins only their own options,
// so the plugin reads the command line again, by Slurm's rules.
type CommandLine struct {
	Command string // "sbatch" or "salloc", or another submitting command; "" if unknown

	grammar Grammar
	options []Option
	rest    []string // from the first word that is not an option
}

// ReadCommandLine reads the arguments of a command that submits jobs, beginning with the
// command. plugin names our own plugin's options, all of which take a value.
func ReadCommandLine(argv []string, plugin ...string) CommandLine {
	c := CommandLine{grammar: submitOptions()}
	c.grammar.Plugins = func() map[string]Argument { return withValues(plugin) }
	if len(argv) > 0 {
		c.Command = filepath.Base(argv[0])
		c.options, c.rest = c.grammar.Parse(argv[1:])
	}
	return c
}

func withValues(names []string) map[string]Argument {
	options := map[string]Argument{}
	for _, name := range names {
		options[name] = RequiredValue
	}
	return options
}

// Has reports whether an option, by its full name, is on the command line.
func (c CommandLine) Has(name string) bool {
	for _, o := range c.options {
		if o.Name == name {
			return true
		}
	}
	return false
}

// Script returns the batch script's path as written, or false if the script comes from
// standard input.
func (c CommandLine) Script() (path string, given bool) {
	rest := c.rest
	if len(rest) > 0 && rest[0] == "--" {
		rest = rest[1:]
	}
	if len(rest) == 0 || strings.HasPrefix(rest[0], "-") {
		return "", false
	}
	return rest[0], true
}

// A Submission says how a job was submitted, as far as this is visible from outside of
// sbatch and salloc.
type Submission struct {
	Command       string // "sbatch" or "salloc"
	Heterogeneous bool   // whether the job has several components

	grammar Grammar
	options map[string]setting // by their long names
}

// A setting is an option's value and where it was given.
type setting struct {
	value, source string
	byVariable    bool
}

const (
	fromScript      = "the batch script"
	fromCommandLine = "the command line"
)

// Submission joins the command line, the text of the batch script (empty if there is
// none) and SBATCH_* or SALLOC_* variables. Variables override the script, and the
// command line overrides both.
func (c CommandLine) Submission(script string, env func(string) string) Submission {
	sub := Submission{Command: "sbatch", grammar: c.grammar, options: map[string]setting{}}
	if c.Command == "salloc" {
		sub.Command = "salloc"
	} else {
		sub.readScript(script)
	}
	sub.readVariables(env)
	sub.add(c.options, fromCommandLine)
	sub.Heterogeneous = sub.Heterogeneous || startsComponent(c.rest)
	return sub
}

// startsComponent reports whether a colon, in place of an option, begins the job's next
// component.
func startsComponent(rest []string) bool { return len(rest) > 0 && rest[0] == ":" }

// add adds options in the order given; later ones override.
func (s *Submission) add(options []Option, source string) {
	for _, o := range options {
		s.options[o.Name] = setting{value: o.Value, source: source}
	}
}

// variables are those about CPUs, memory and GRES, without the command's prefix.
var variables = map[string]string{
	"EXCLUSIVE": "exclusive", "GRES": "gres", "MEM_PER_CPU": "mem-per-cpu", "MEM_PER_GPU": "mem-per-gpu",
	"MEM_PER_NODE": "mem", "OVERCOMMIT": "overcommit",
}

func (s *Submission) readVariables(env func(string) string) {
	for suffix, name := range variables {
		variable := strings.ToUpper(s.Command) + "_" + suffix
		value := env(variable)
		isFlag := s.grammar.long[name] == NoValue
		if value == "" || isFlag && (value == "0" || strings.EqualFold(value, "no")) {
			continue
		}
		s.options[name] = setting{value: value, source: variable, byVariable: true}
	}
}

// Given returns those of the named options that the submission has, with their source:
// "--mem from the batch script", "the variable SBATCH_MEM_PER_NODE".
func (s Submission) Given(names ...string) []string {
	var texts []string
	for _, name := range names {
		setting, ok := s.options[name]
		switch {
		case ok && setting.byVariable:
			texts = append(texts, "the variable "+setting.source)
		case ok:
			texts = append(texts, "--"+name+" from "+setting.source)
		}
	}
	return texts
}

// WorkDir returns the directory in which the job will start if it was submitted from cwd.
func (s Submission) WorkDir(cwd string) string {
	dir := s.options["chdir"].value
	switch {
	case dir == "":
		return cwd
	case filepath.IsAbs(dir):
		return filepath.Clean(dir)
	}
	return filepath.Join(cwd, dir)
}
