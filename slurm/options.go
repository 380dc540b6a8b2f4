package slurm

import (
	"regexp"
	"strings"
)

// An Argument says whether an option takes a value.
type Argument int

// The values of Argument.
const (
	NoValue       Argument = iota
	OptionalValue          // only after "=", or directly after the letter; never the next word
	RequiredValue          // after "=", directly after the letter, or the next word
)

// A command is a Slurm command, or a set of those that share a grammar.
type command int

const (
	submit command = 1 << iota // sbatch and salloc
	srun
	all = submit | srun
)

// options are the long options of Slurm from 22.05 to 26.05, by the argument that they
// take. Those of srun were tried with 22.05.
var options = []struct {
	of    command
	takes Argument
	names string
}{
	{all, NoValue, `contiguous help hold overcommit oversubscribe quiet reboot spread-job stepmgr test-only usage
		use-min-nodes verbose version`},
	{all, OptionalValue, `exclusive immediate nice no-kill oom-kill-step propagate resv-ports x11`},
	{all, RequiredValue, `account acctg-freq bb bbf begin chdir cluster cluster-constraint clusters comment constraint
		container container-id container-type core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline
		delay-boot dependency distribution error exclude export extra extra-node-info gid gpu-bind
		gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input job-name
		jobid licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mem-update mincpus
		network nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node
		ntasks-per-socket open-mode output partition power prefer priority profile qos reservation
		resources segment signal sockets-per-node switches tasks-per-node thread-spec threads-per-core time time-min tmp
		tres-bind tres-per-task uid wckey`},

	{submit, NoValue, `bell consolidate-segments external ignore-pbs no-bell no-requeue no-shell parsable requeue
		spread-segments wait`},
	{submit, OptionalValue, `get-user-env kill-command`},
	{submit, RequiredValue, `array batch export-file kill-on-invalid-dep wait-all-nodes wrap`},

	{srun, NoValue, `debugger-test disable-status exact external-launcher interactive label multi-prog no-allocate
		preserve-env pty quit-on-interrupt unbuffered wait-for-children whole`},
	{srun, OptionalValue, `bcast compress kill-on-bad-exit overlap send-libs`},
	{srun, RequiredValue, `accel-bind bcast-exclude cpu-bind epilog het-group mpi msg-timeout ntasks-per-tres pack-group
		prolog relative slurmd-debug task-epilog task-prolog threads treewidth wait`},
}

// letters are the options with one letter and the equivalent long names. They are the
// same from 22.05 to 25.11.
var letters = []struct {
	of    command
	names map[byte]string
}{
	{all, map[byte]string{
		'A': "account", 'B': "extra-node-info", 'C': "constraint", 'D': "chdir", 'F': "nodefile", 'G': "gpus",
		'H': "hold", 'I': "immediate", 'J': "job-name", 'L': "licenses", 'M': "clusters", 'N': "nodes",
		'O': "overcommit", 'Q': "quiet", 'S': "core-spec", 'V': "version", 'W': "wait", 'b': "begin",
		'c': "cpus-per-task", 'd': "dependency", 'e': "error", 'h': "help", 'i': "input", 'k': "no-kill",
		'm': "distribution", 'n': "ntasks", 'o': "output", 'p': "partition", 'q': "qos", 's': "oversubscribe",
		't': "time", 'v': "verbose", 'w': "nodelist", 'x': "exclude",
	}},
	{submit, map[byte]string{'K': "kill-command", 'a': "array"}},
	{srun, map[byte]string{
		'E': "preserve-env", 'K': "kill-on-bad-exit", 'T': "threads", 'X': "disable-status", 'Z': "no-allocate",
		'l': "label", 'r': "relative", 'u': "unbuffered",
	}},
}

// synonyms are options under their second names, which no help mentions.
var synonyms = map[string]string{"cluster": "clusters", "tasks-per-node": "ntasks-per-node"}

// A Grammar says which options a command has, and which argument each of them takes.
type Grammar struct {
	long    map[string]Argument
	letters map[byte]string

	// Own are the caller's own options. They cannot be abbreviated.
	Own map[string]Argument

	// Plugins returns the options of Slurm's plugins; nil without plugins. It is called
	// only for a name that is not an option of Slurm itself.
	Plugins func() map[string]Argument
}

// submitOptions are the options of sbatch and salloc.
func submitOptions() Grammar { return grammarOf(submit) }

// SrunOptions are the options of srun.
func SrunOptions() Grammar { return grammarOf(srun) }

func grammarOf(c command) Grammar {
	g := Grammar{long: map[string]Argument{}, letters: map[byte]string{}}
	for _, group := range options {
		if group.of&c != 0 {
			for _, name := range strings.Fields(group.names) {
				g.long[name] = group.takes
			}
		}
	}
	for _, group := range letters {
		if group.of&c != 0 {
			for letter, name := range group.names {
				g.letters[letter] = name
			}
		}
	}
	return g
}

// An Option is one option on a command line.
type Option struct {
	Name   string // the full long name, the usual one of two; if not Known, the name as written
	Letter byte   // with which it is written; 0 if written by name
	Known  bool   // whether the grammar has it
	Takes  Argument
	Value  string
	Given  bool     // whether it has a value, possibly empty
	Words  []string // from the end of the previous option to the end of this one
}

// Missing reports whether the option lacks its value because the words end.
func (o Option) Missing() bool { return o.Takes == RequiredValue && !o.Given }

// Parse reads words up to the first that is neither an option nor an option's value: what
// follows a program, or "--", does not belong to Slurm. It takes an unknown option for
// one without a value. The Words of all options, and then rest, make up words again.
func (g Grammar) Parse(words []string) (found []Option, rest []string) {
	rest = words
	for len(rest) > 0 && isOption(rest[0]) {
		var next []Option
		next, rest = g.next(rest)
		found = append(found, next...)
	}
	return found, rest
}

func isOption(word string) bool { return len(word) > 1 && word[0] == '-' && word != "--" }

// next reads the options in the first word, and the value of the last one of them.
func (g Grammar) next(words []string) (found []Option, rest []string) {
	if name, isLong := strings.CutPrefix(words[0], "--"); isLong {
		found = []Option{g.byName(name)}
	} else {
		found = g.byLetters(words[0][1:])
	}
	last := &found[len(found)-1]
	taken := 1
	if last.Missing() && len(words) > 1 {
		last.Value, last.Given, taken = words[1], true, 2
	}
	last.Words = words[:taken]
	return found, words[taken:]
}

// byName reads "name" or "name=value".
func (g Grammar) byName(word string) (o Option) {
	o.Name, o.Value, o.Given = strings.Cut(word, "=")
	o.Name, o.Takes, o.Known = g.lookUp(o.Name)
	if name, second := synonyms[o.Name]; second {
		o.Name = name
	}
	return o
}

// byLetters reads options with one letter, of which the last may have a value, as in Hc4.
func (g Grammar) byLetters(word string) (found []Option) {
	for i := range len(word) { // by byte, as getopt does
		o := Option{Letter: word[i], Name: g.letters[word[i]]}
		o.Takes, o.Known = g.long[o.Name]
		if o.Takes != NoValue {
			o.Value = word[i+1:]
			o.Given = o.Value != ""
			return append(found, o)
		}
		found = append(found, o)
	}
	return found
}

// lookUp returns the full name of an option and the argument that it takes.
func (g Grammar) lookUp(name string) (full string, takes Argument, known bool) {
	if takes, mine := g.Own[name]; mine {
		return name, takes, true
	}
	if full, found := complete(g.long, name); found {
		return full, g.long[full], true
	}
	if g.Plugins == nil {
		return name, NoValue, false
	}
	plugins := g.Plugins()
	if full, found := complete(plugins, name); found {
		return full, plugins[full], true
	}
	return name, NoValue, false
}

// complete returns the option for a name that may be abbreviated: getopt takes any
// unambiguous prefix.
func complete(options map[string]Argument, name string) (full string, found bool) {
	if _, ok := options[name]; ok {
		return name, true
	}
	for candidate := range options {
		if strings.HasPrefix(candidate, name) {
			if found {
				return "", false
			}
			full, found = candidate, true
		}
	}
	return full, found
}

// helpOption matches the description of an option in a command's --help.
var helpOption = regexp.MustCompile(`(?m)^ {2,6}(?:-[A-Za-z],? +)?--([a-z][a-z0-9-]*)(\[?)(=?)`)

// ParseHelp reads the options in the output of srun --help, including those of plugins.
func ParseHelp(text string) map[string]Argument {
	found := map[string]Argument{}
	for _, m := range helpOption.FindAllStringSubmatch(text, -1) {
		switch {
		case m[3] == "":
			found[m[1]] = NoValue
		case m[2] == "[":
			found[m[1]] = OptionalValue
		default:
			found[m[1]] = RequiredValue
		}
	}
	return found
}
