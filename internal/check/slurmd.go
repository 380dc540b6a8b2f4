package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/internal/environ"
)

// ticksPerSecond is USER_HZ, the unit of start times in /proc.
const ticksPerSecond = 100

// A slurmd is the daemon of this node, as /proc shows it.
type slurmd struct {
	dir     string // in /proc
	started time.Time
}

var errNoSlurmd = errors.New("slurmd does not run here")

// findSlurmd looks for the daemon in /proc below root. If several daemons share the host,
// it returns the one started for node, and of several such the one in this process's network:
// a machine may run several clusters in namespaces.
func findSlurmd(root, node string) (slurmd, error) {
	dirs, err := filepath.Glob(filepath.Join(root, "proc", "[0-9]*"))
	if err != nil {
		return slurmd{}, err
	}
	var found []string
	for _, dir := range dirs {
		if name := nodeOfSlurmd(dir); name != nil && (*name == "" || *name == node) {
			found = append(found, dir)
		}
	}
	if len(found) == 0 {
		return slurmd{}, errNoSlurmd
	}
	its := found[max(0, slices.IndexFunc(found, func(dir string) bool { return sharesNetwork(root, dir) }))]
	started, err := startTime(filepath.Join(root, "proc"), its)
	return slurmd{dir: its, started: started}, err
}

// IsNode reports whether slurmd runs on the host below root, for the node of that name.
func IsNode(root, name string) bool {
	_, err := findSlurmd(root, name)
	return err == nil
}

// sharesNetwork reports whether a process is in this process's network namespace.
func sharesNetwork(root, dir string) bool {
	its, err := os.Readlink(filepath.Join(dir, "ns/net"))
	own, _ := os.Readlink(filepath.Join(root, "proc/self/ns/net"))
	return err == nil && its == own
}

// nodeOfSlurmd returns the name after -N, "" without one, and nil if the process is not
// slurmd.
func nodeOfSlurmd(dir string) *string {
	comm, err := os.ReadFile(filepath.Join(dir, "comm"))
	if err != nil || strings.TrimSpace(string(comm)) != "slurmd" {
		return nil
	}
	line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
	words := strings.Split(string(bytes.TrimRight(line, "\x00")), "\x00")
	name := ""
	if i := slices.Index(words, "-N"); i >= 0 && i+1 < len(words) {
		name = words[i+1]
	}
	for _, w := range words {
		if strings.HasPrefix(w, "-N") && len(w) > 2 {
			name = w[2:]
		}
	}
	return &name
}

// variable returns a variable of the environment in which the daemon was started, as far as this user may read it.
func (s slurmd) variable(name string) string {
	if s.dir == "" {
		return "" // no daemon
	}
	env, _ := os.ReadFile(filepath.Join(s.dir, "environ"))
	return environ.Value(strings.Split(string(env), "\x00"), name)
}

// startTime returns when a process started: the boot's time plus its start in ticks.
func startTime(proc, dir string) (time.Time, error) {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return time.Time{}, err
	}
	boot, err := bootTime(proc)
	if err != nil {
		return time.Time{}, err
	}
	// The name in parentheses may contain anything; field 22 is the 20th after it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return time.Time{}, fmt.Errorf("%s/stat is too short", dir)
	}
	ticks, err := strconv.ParseInt(fields[19], 10, 64)
	return boot.Add(time.Duration(ticks) * time.Second / ticksPerSecond), err
}

func bootTime(proc string) (time.Time, error) {
	text, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return time.Time{}, err
	}
	for line := range strings.Lines(string(text)) {
		if after, found := strings.CutPrefix(line, "btime "); found {
			seconds, err := strconv.ParseInt(strings.TrimSpace(after), 10, 64)
			return time.Unix(seconds, 0), err
		}
	}
	return time.Time{}, errors.New("/proc/stat has no btime")
}

// leastFiles is the number of files that one agent with many VMs and programs may need:
// some five for a VM and one for each program's connection.
const leastFiles = 8192

// limits checks slurmd's limits, which agents and VMs inherit.
func limits(_ context.Context, i *inspection) []Result {
	const name = "limits"
	if i.slurmdErr != nil {
		return []Result{skipped(name, i.slurmdErr.Error(), "")}
	}
	text, err := os.ReadFile(filepath.Join(i.slurmd.dir, "limits"))
	if err != nil {
		return []Result{skipped(name, err.Error(), "run as root")}
	}
	return []Result{judgeLimits(parseLimits(string(text)), len(i.pfs) > 0)}
}

// hardLimits are limits by the kernel's names, such as "Max open files".
type hardLimits map[string]uint64

func parseLimits(text string) hardLimits {
	l := hardLimits{}
	for line := range strings.Lines(text) {
		if len(line) < 47 { // name in 26 columns, soft in 21
			continue
		}
		fields := strings.Fields(line[26:])
		if len(fields) < 2 {
			continue
		}
		n, err := strconv.ParseUint(fields[1], 10, 64)
		if fields[1] == "unlimited" {
			n, err = math.MaxUint64, nil
		}
		if err == nil {
			l[strings.TrimSpace(line[:26])] = n
		}
	}
	return l
}

func judgeLimits(l hardLimits, vfs bool) Result {
	const name = "limits"
	files, memory := l["Max open files"], l["Max locked memory"]
	seen := fmt.Sprintf("of slurmd: open files %s, locked memory %s", limitText(files), limitText(memory))
	switch {
	case files < leastFiles:
		return warning(name, seen, fmt.Sprintf("raise slurmd's limit of open files to %d (LimitNOFILE=): an agent needs several for each VM and program", leastFiles))
	case vfs && memory != math.MaxUint64:
		return warning(name, seen, "set LimitMEMLOCK=infinity for slurmd: a VM with a VF has all its memory locked")
	}
	return ok(name, seen)
}

func limitText(n uint64) string {
	if n == math.MaxUint64 {
		return "unlimited"
	}
	return strconv.FormatUint(n, 10)
}
