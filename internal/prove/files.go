package prove

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Files are the texts of the files that a job has left, by their names.
type Files map[string]string

// A command is what is known of one run of a script.
type command struct {
	out, errors string
	status      int
	seconds     float64
	known       bool // it has ended
}

// command reads the files of a run.
func (f Files) command(name string) command {
	c := command{out: f[name+".out"], errors: f[name+".err"]}
	var begin, end float64
	n, _ := fmt.Sscan(f[name+".status"], &c.status, &begin, &end)
	c.known, c.seconds = n == 3, max(0, end-begin)
	return c
}

// seconds adds up the times of the runs whose names begin so.
func (f Files) seconds(prefixes ...string) (sum float64) {
	for name := range f {
		run, isStatus := strings.CutSuffix(name, ".status")
		if isStatus && slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(run, p) }) {
			sum += f.command(run).seconds
		}
	}
	return sum
}

// why returns the reason of a run's failure, or "".
func (c command) why() string {
	switch {
	case !c.known:
		return "it has not ended, or was not begun"
	case c.status == 0:
		return ""
	}
	if line := telling(c.errors); line != "" {
		return line
	}
	return fmt.Sprintf("exit status %d, and no words", c.status)
}

// telling returns the line of an error output that says most: the first of Slurm-V's or of
// the workload's, else the first at all.
func telling(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	for _, program := range []string{"slurmv-workload:", "slurm-v-run:", "slurmv:"} {
		if i := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, program) }); i >= 0 {
			return lines[i]
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return lines[0]
}

// ofNodes returns the texts of files name.0, name.1 …, by the node's number in the job.
func (f Files) ofNodes(name string, nodes int) []string {
	texts := make([]string, nodes)
	for i := range texts {
		texts[i] = f[name+"."+strconv.Itoa(i)]
	}
	return texts
}

// decoded reads the lines of JSON that the ranks of a run have printed. It skips lines of
// others, such as a site's prolog.
func decoded[T any](text string) (all []T) {
	for line := range strings.Lines(text) {
		var one T
		if strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &one) == nil {
			all = append(all, one)
		}
	}
	return all
}
