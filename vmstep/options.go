package vmstep

import (
	"regexp"
	"strings"
)

// argument says whether an option of srun takes a value.
type argument int

const (
	noValue       argument = iota
	optionalValue          // only behind "=": the next word is never the value
	requiredValue          // behind "=" or as the next word
)

// srunShort are srun's one-letter options, with the long names that mean the
// same. They have not changed from 22.05 to 25.11.
var srunShort = map[byte]string{
	'A': "account", 'B': "extra-node-info", 'C': "constraint", 'D': "chdir", 'E': "preserve-env",
	'F': "nodefile", 'G': "gpus", 'H': "hold", 'I': "immediate", 'J': "job-name", 'K': "kill-on-bad-exit",
	'L': "licenses", 'M': "clusters", 'N': "nodes", 'O': "overcommit", 'Q': "quiet", 'S': "core-spec",
	'T': "threads", 'V': "version", 'W': "wait", 'X': "disable-status", 'Z': "no-allocate", 'b': "begin",
	'c': "cpus-per-task", 'd': "dependency", 'e': "error", 'h': "help", 'i': "input", 'k': "no-kill",
	'l': "label", 'm': "distribution", 'n': "ntasks", 'o': "output", 'p': "partition", 'q': "qos",
	'r': "relative", 's': "oversubscribe", 't': "time", 'u': "unbuffered", 'v': "verbose", 'w': "nodelist",
	'x': "exclude",
}

// srunLong are srun's long options: those that srun 22.05 was seen to take, and
// the ones added up to 25.11. What is missing here, the options of other SPANK
// plugins above all, is looked up in srun --help.
var srunLong = longOptions(
	names(noValue, `contiguous debugger-test disable-status exact external-launcher help hold interactive label
		multi-prog no-allocate oom-kill-step overcommit oversubscribe preserve-env pty quiet quit-on-interrupt reboot spread-job
		stepmgr test-only unbuffered usage use-min-nodes verbose version wait-for-children whole`),
	names(optionalValue, `bcast compress exclusive immediate kill-on-bad-exit nice no-kill overlap propagate
		resv-ports send-libs x11`),
	names(requiredValue, `accel-bind account acctg-freq bb bbf bcast-exclude begin chdir cluster-constraint
		clusters comment constraint container container-id core-spec cores-per-socket cpu-bind cpu-freq cpus-per-gpu
		cpus-per-task deadline delay-boot dependency distribution epilog error exclude export extra-node-info extra
		gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags het-group hint input
		job-name jobid licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus mpi
		msg-timeout network nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node
		ntasks-per-socket ntasks-per-tres open-mode output pack-group partition power prefer priority profile prolog qos
		relative reservation resources segment signal slurmd-debug sockets-per-node switches task-epilog task-prolog
		thread-spec threads threads-per-core time time-min tmp tres-bind tres-per-task treewidth uid wait wckey`),
)

func names(a argument, words string) map[string]argument {
	m := map[string]argument{}
	for _, name := range strings.Fields(words) {
		m[name] = a
	}
	return m
}

func longOptions(groups ...map[string]argument) map[string]argument {
	all := map[string]argument{}
	for _, group := range groups {
		for name, a := range group {
			all[name] = a
		}
	}
	return all
}

// helpOption matches an option where srun --help describes it.
var helpOption = regexp.MustCompile(`(?m)^ {2,6}(?:-[A-Za-z],? +)?--([a-z][a-z0-9-]*)(\[?)(=?)`)

// parseHelp reads the options that srun --help lists, its plugins' included.
func parseHelp(text string) map[string]argument {
	found := map[string]argument{}
	for _, m := range helpOption.FindAllStringSubmatch(text, -1) {
		switch {
		case m[3] == "":
			found[m[1]] = noValue
		case m[2] == "[":
			found[m[1]] = optionalValue
		default:
			found[m[1]] = requiredValue
		}
	}
	return found
}

// complete returns the option that name, possibly shortened, means among
// options: srun takes any unambiguous beginning.
func complete(options map[string]argument, name string) (full string, found bool) {
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
