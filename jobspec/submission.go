package jobspec

import (
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// A Submission is how a job was submitted, as far as it can be seen from
// outside of sbatch and salloc: Slurm's plugins are told their own options and no
// others, so the command line, the batch script and the environment are read
// again, by Slurm's rules.
type Submission struct {
	// Heterogeneous is set if the job has several components.
	Heterogeneous bool

	command string             // "sbatch" or "salloc"
	options map[string]setting // Slurm's own, by their long names
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

// ReadSubmission reads the arguments of sbatch or salloc, their own name first,
// the text of the batch script, empty if there is none, and SBATCH_* or SALLOC_*
// variables. Later ones of these override earlier ones in this order: script,
// variables, arguments.
func ReadSubmission(argv []string, script string, env func(string) string) Submission {
	sub := Submission{command: "sbatch", options: map[string]setting{}}
	if len(argv) > 0 && filepath.Base(argv[0]) == "salloc" {
		sub.command = "salloc"
	}
	if sub.command == "sbatch" {
		sub.readScript(script)
	}
	sub.readVariables(env)
	if len(argv) > 0 {
		sub.readArguments(argv[1:], fromCommandLine)
	}
	return sub
}

// WorkDir returns the directory that the job will start in, if it was submitted
// from cwd.
func (s Submission) WorkDir(cwd string) string {
	if dir := s.options["chdir"].value; dir != "" {
		return absolute(dir, cwd)
	}
	return cwd
}

// readScript reads the #SBATCH lines. They end at the first line that is neither
// empty nor a comment, and are read as if all of them were one command line.
func (s *Submission) readScript(script string) {
	var args []string
	for line := range strings.Lines(script) {
		if text := strings.TrimSpace(line); text != "" && text[0] != '#' {
			break
		}
		directive, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "#SBATCH")
		if !ok {
			continue
		}
		words := splitDirective(directive)
		if len(words) > 0 && (words[0] == "hetjob" || words[0] == "packjob") {
			s.Heterogeneous = true
			break
		}
		args = append(args, words...)
	}
	s.readArguments(args, fromScript)
}

// splitDirective splits a line as sbatch does: a backslash keeps the next
// character, unless that is a space outside of quotes; # and an empty word in
// quotes end the line.
func splitDirective(line string) []string {
	var words []string
	for {
		word, rest, comment := cutWord(strings.TrimLeftFunc(line, unicode.IsSpace))
		if word == "" {
			return words
		}
		words = append(words, word)
		if comment {
			return words
		}
		line = rest
	}
}

// cutWord returns the first word of a line, what follows it, and whether that is
// a comment.
func cutWord(line string) (word, rest string, comment bool) {
	var (
		text   strings.Builder
		quote  rune
		escape bool
	)
	for i, r := range line {
		switch {
		case quote == 0 && unicode.IsSpace(r):
			return text.String(), line[i:], false
		case escape:
			escape = false
			text.WriteRune(r)
		case r == '\\':
			escape = true
		case r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote = r
		case quote == 0 && r == '#':
			return text.String(), "", true
		default:
			text.WriteRune(r)
		}
	}
	return text.String(), "", false
}

// variables are those that say something about CPUs, memory and VFs, without the
// command's prefix.
var variables = map[string]string{
	"EXCLUSIVE": "exclusive", "GRES": "gres", "MEM_PER_CPU": "mem-per-cpu", "MEM_PER_GPU": "mem-per-gpu",
	"MEM_PER_NODE": "mem", "OVERCOMMIT": "overcommit",
}

func (s *Submission) readVariables(env func(string) string) {
	for suffix, name := range variables {
		variable := strings.ToUpper(s.command) + "_" + suffix
		value := env(variable)
		if value == "" || isFlag(name) && (value == "0" || strings.EqualFold(value, "no")) {
			continue
		}
		s.options[name] = setting{value: value, source: variable, byVariable: true}
	}
}

// readArguments reads options up to the first word that is none.
func (s *Submission) readArguments(args []string, source string) {
	for len(args) > 0 {
		word := args[0]
		args = args[1:]
		switch {
		case word == ":":
			s.Heterogeneous = true
			return
		case word == "--" || word == "-" || !strings.HasPrefix(word, "-"):
			return
		case strings.HasPrefix(word, "--"):
			args = s.readLong(word[2:], args, source)
		default:
			args = s.readShort(word[1:], args, source)
		}
	}
}

// readLong reads one option with a long name and returns the arguments after it
// and its value.
func (s *Submission) readLong(word string, rest []string, source string) []string {
	name, value, attached := strings.Cut(word, "=")
	name = fullName(name)
	if !attached && takesValue(name) && len(rest) > 0 {
		value, rest = rest[0], rest[1:]
	}
	s.options[name] = setting{value: value, source: source}
	return rest
}

// readShort reads a word of options with one letter, such as -Hc4.
func (s *Submission) readShort(letters string, rest []string, source string) []string {
	for i := range len(letters) { // bytes: getopt knows no others
		name, value := shortNames[letters[i]], letters[i+1:]
		if isFlag(name) || name == "" {
			s.options[name] = setting{source: source}
			continue
		}
		if value == "" && takesValue(name) && len(rest) > 0 {
			value, rest = rest[0], rest[1:]
		}
		s.options[name] = setting{value: value, source: source}
		break
	}
	return rest
}

// fullName completes an abbreviation, as getopt_long does. A name that nobody
// knows is another plugin's and stays what it is.
func fullName(name string) string {
	var full string
	for _, known := range slices.Concat(withValue, withOptionalValue, flags, optionNames()) {
		switch {
		case known == name:
			return name
		case strings.HasPrefix(known, name) && full != "":
			return name // ambiguous: Slurm refuses it
		case strings.HasPrefix(known, name):
			full = known
		}
	}
	if full == "" {
		return name
	}
	return full
}

func optionNames() []string {
	var names []string
	for _, option := range Options {
		names = append(names, option.Name)
	}
	return names
}

// takesValue reports whether the word after an option is its value. Other
// plugins' options are taken for flags: then reading ends early at worst, and
// does not mistake arguments of the program for options.
func takesValue(name string) bool {
	return slices.Contains(withValue, name) || slices.Contains(optionNames(), name)
}

func isFlag(name string) bool { return slices.Contains(flags, name) }

// The options of sbatch and salloc from Slurm 22.05 on, by what follows them.
var (
	withValue = strings.Fields(`
		account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters
		comment constraint container container-id core-spec cores-per-socket cpu-freq
		cpus-per-gpu cpus-per-task deadline delay-boot dependency distribution error
		exclude export export-file extra extra-node-info gid gpu-bind gpu-freq gpus
		gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input job-name
		jobid kill-on-invalid-dep licenses mail-type mail-user mcs-label mem mem-bind
		mem-per-cpu mem-per-gpu mincpus network nodefile nodelist nodes ntasks
		ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode
		output partition power prefer priority profile qos reservation segment signal
		sockets-per-node switches thread-spec threads-per-core time time-min tmp
		tres-bind tres-per-task uid wait-all-nodes wckey wrap`)
	withOptionalValue = strings.Fields(`
		exclusive get-user-env immediate kill-command nice no-kill oom-kill-step
		propagate resv-ports x11`)
	flags = strings.Fields(`
		bell consolidate-segments contiguous external help hold ignore-pbs no-bell
		no-requeue no-shell overcommit oversubscribe parsable quiet reboot requeue
		spread-job spread-segments stepmgr test-only usage use-min-nodes verbose
		version wait`)
	shortNames = map[byte]string{
		'A': "account", 'a': "array", 'b': "begin", 'B': "extra-node-info", 'C': "constraint",
		'c': "cpus-per-task", 'd': "dependency", 'D': "chdir", 'e': "error", 'F': "nodefile",
		'G': "gpus", 'h': "help", 'H': "hold", 'i': "input", 'I': "immediate", 'J': "job-name",
		'k': "no-kill", 'K': "kill-command", 'L': "licenses", 'm': "distribution", 'M': "clusters",
		'n': "ntasks", 'N': "nodes", 'o': "output", 'O': "overcommit", 'p': "partition", 'q': "qos",
		'Q': "quiet", 's': "oversubscribe", 'S': "core-spec", 't': "time", 'v': "verbose",
		'V': "version", 'w': "nodelist", 'W': "wait", 'x': "exclude",
	}
)
