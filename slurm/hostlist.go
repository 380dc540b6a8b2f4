package slurm

import (
	"fmt"
	"strconv"
	"strings"
)

// maxHosts bounds how many nodes a list may name: Slurm's own limit (MAX_SLURM_NODES).
const maxHosts = 64 << 10

// Expand returns the nodes of a list such as n[1-4,07],m2, in the list's order. It is
// [Client.Hostnames] without a process: slurmctld waits for what it starts.
func Expand(list string) ([]string, error) {
	var hosts []string
	for word, rest := nextWord(list); word != ""; word, rest = nextWord(rest) {
		names, err := expandWord(word, maxHosts-len(hosts))
		if err != nil {
			return nil, fmt.Errorf("%q is no list of nodes: %w", list, err)
		}
		hosts = append(hosts, names...)
	}
	return hosts, nil
}

// nextWord cuts the list at the first comma outside of brackets.
func nextWord(list string) (word, rest string) {
	inside := false
	for i, c := range list {
		switch {
		case c == '[':
			inside = true
		case c == ']':
			inside = false
		case c == ',' && !inside:
			if i == 0 {
				return nextWord(list[1:])
			}
			return list[:i], list[i+1:]
		}
	}
	return list, ""
}

// expandWord returns at most so many names of a word such as rack[1-2]n[01-16]. The last
// brackets count fastest.
func expandWord(word string, most int) ([]string, error) {
	prefix, rest, brackets := strings.Cut(word, "[")
	if !brackets {
		return withinHosts([]string{word}, most)
	}
	numbers, suffix, closed := strings.Cut(rest, "]")
	if !closed || strings.ContainsAny(prefix, "]") {
		return nil, fmt.Errorf("the brackets of %q do not match", word)
	}
	middles, err := expandNumbers(numbers, most)
	if err != nil {
		return nil, err
	}
	ends, err := expandWord(suffix, most)
	if err != nil {
		return nil, err
	}
	if len(middles)*len(ends) > most {
		return nil, errTooMany
	}
	var names []string
	for _, middle := range middles {
		for _, end := range ends {
			names = append(names, prefix+middle+end)
		}
	}
	return names, nil
}

var errTooMany = fmt.Errorf("it names more than %d nodes", maxHosts)

func withinHosts(names []string, most int) ([]string, error) {
	if len(names) > most {
		return nil, errTooMany
	}
	return names, nil
}

// expandNumbers returns the numbers of a list such as 1-4,07, with their zeros.
func expandNumbers(list string, most int) (numbers []string, err error) {
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.ParseUint(from, 10, 32)
		last, err2 := strconv.ParseUint(to, 10, 32)
		switch {
		case err1 != nil || err2 != nil || last < first:
			return nil, fmt.Errorf("%q is no range of numbers", part)
		case len(numbers)+int(last-first) >= most:
			return nil, errTooMany
		}
		for n := first; n <= last; n++ {
			numbers = append(numbers, fmt.Sprintf("%0*d", len(from), n))
		}
	}
	return numbers, nil
}
