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
	OptionalValue          // only behind "=", or behind the letter: the next word is never the value
	RequiredValue          // there, or as the next word
)

// A command is one of Slurm's, or several in one set, that share a grammar.
type command int

const (
	submit command = 1 << iota // sbatch and salloc
	srun
	all = submit | srun
)

// options are the long options of Slurm from 22.05 to 25.11, by what follows them. Those
// of srun 22.05 were tried.
var options = []struct {
	of    command
	takes Argument
	names string
}{
	{all, NoValue, `contiguous help hold overcommit oversubscribe quiet reboot spread-job stepmgr test-only usage
		use-min-nodes verbose version`},
	{all, OptionalValue, `exclusive immediate nice no-kill oom-kill-step propagate resv-ports x11`},
	{all, RequiredValue, `account acctg-freq bb bbf begin chdir cluster-constraint clusters comment constraint
		container container-id core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline
		delay-boot dependency distribution error exclude export extra extra-node-info gid gpu-bind
		gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input job-name
		jobid licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus
		network nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node
		ntasks-per-socket open-mode output partition power prefer priority profile qos reservation
		segment signal sockets-per-node switches thread-spec threads-per-core time time-min tmp
		tres-bind tres-per-task uid wckey`},

	{submit, NoValue, `bell consolidate-segments external ignore-pbs no-bell no-requeue no-shell parsable requeue
		spread-segments wait`},
	{submit, OptionalValue, `get-user-env kill-command`},
	{submit, RequiredValue, `array batch export-file kill-on-invalid-dep wait-all-nodes wrap`},

	{srun, NoValue, `debugger-test disable-status exact external-launcher interactive label multi-prog no-allocate
		preserve-env pty quit-on-interrupt unbuffered wait-for-children whole`},
	{srun, OptionalValue, `bcast compress kill-on-bad-exit overlap send-libs`},
	{srun, RequiredValue, `accel-bind bcast-exclude cpu-bind epilog het-group mpi msg-timeout ntasks-per-tres pack-group
		prolog relative resources slurmd-debug task-epilog task-prolog threads treewidth wait`},
}

// letters are the options with one letter and the long names that mean the same. They
// have not changed from 22.05 to 25.11.
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

// A Grammar is which options a command takes, and what follows each of them.
type Grammar struct {
	long    map[string]Argument
	letters map[byte]string

	// Own are options of the caller's, which have to be written in full.
	Own map[string]Argument

	// Plugins returns the options of Slurm's plugins. It is called only for a name that is
	// none of Slurm's own options; nil where there are no plugins.
	Plugins func() map[string]Argument
}

// SubmitOptions are the options of sbatch and salloc.
func SubmitOptions() Grammar { return grammarOf(submit) }

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

// An Option is one of a command line.
type Option struct {
	Name   string // the long one, in full; as it is written if it is not Known
	Letter byte   // that it is written by, 0 if by its name
	Known  bool   // whether the grammar has it
	Takes  Argument
	Value  string
	Given  bool     // whether a value is there, be it empty
	Words  []string // of the command line that end with this option, and with no earlier one
}

// Missing reports whether the option stands at the end of the words without its value.
func (o Option) Missing() bool { return o.Takes == RequiredValue && !o.Given }

// Parse reads words up to the first that is neither an option nor the value of one: what
// follows a program, or "--", is not Slurm's. An option that the grammar does not have is
// taken for one without a value. The words of all options and rest together are words.
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

// next reads the options of the first word, and the value of the last of them.
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

// byName reads name or name=value.
func (g Grammar) byName(word string) (o Option) {
	o.Name, o.Value, o.Given = strings.Cut(word, "=")
	o.Name, o.Takes, o.Known = g.lookUp(o.Name)
	return o
}

// byLetters reads options with one letter, of which the last may have a value: Hc4.
func (g Grammar) byLetters(word string) (found []Option) {
	for i := range len(word) { // bytes: getopt knows no others
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

// lookUp returns the full name of an option and what it takes.
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

// complete returns the option that name, possibly shortened, means: getopt takes any
// beginning that is not ambiguous.
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

// helpOption matches an option where a command's --help describes it.
var helpOption = regexp.MustCompile(`(?m)^ {2,6}(?:-[A-Za-z],? +)?--([a-z][a-z0-9-]*)(\[?)(=?)`)

// ParseHelp reads the options in what srun --help prints, those of its plugins included.
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
