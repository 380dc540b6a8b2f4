// Package leftovers looks for what a job has on a node: processes, network devices, files,
// mounts and cgroups. After the job's end there must be nothing.
//
// It examines the node and ignores Slurm-V's records, because they may be wrong. Looking
// changes nothing, and any user may look. A user does not see all that root would: leases
// of virtual functions and packet filters are root's.
package leftovers

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/mountinfo"
	"github.com/slurm-v/slurm-v/internal/process"
	"github.com/slurm-v/slurm-v/internal/vmnet"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/slurm/cgroup"
)

// A Node is where to look.
type Node struct {
	Root       string   // all paths are below it; "/" on a real node
	State, Run string   // Slurm-V's directories
	Links      []string // names of the network devices
	Self       int      // a process of this search, which and whose step do not count

	// IDOf returns the number of the job with a SLUID, by which Slurm 26.05 and newer call
	// jobs among cgroups; 0 if it is not known.
	IDOf func(sluid string) uint32
}

// This returns the node of this process, which has a name in Slurm.
func This(cfg config.Config, name string) Node {
	return Node{Root: "/", State: cfg.StateDir(name), Run: cfg.RunDir(name), Self: os.Getpid(), IDOf: askOnce(slurm.User(os.Environ()))}
}

// askOnce asks slurmctld for the number of each job once.
func askOnce(c slurm.Client) func(string) uint32 {
	known := map[string]uint32{}
	return func(sluid string) uint32 {
		id, asked := known[sluid]
		if !asked {
			ctx, cancel := context.WithTimeout(context.Background(), slurm.Patience)
			defer cancel()
			id, _ = c.IDOf(ctx, sluid)
			known[sluid] = id
		}
		return id
	}
}

// numberOf returns the number of a job among cgroups.
func (n Node) numberOf(job cgroup.Job) (uint32, bool) {
	if id, ok := job.ID(); ok || n.IDOf == nil {
		return id, ok
	}
	id := n.IDOf(string(job))
	return id, id != 0
}

// A Thing is something that a job has.
type Thing struct {
	Kind string // process, link, file, directory, mount or cgroup
	Name string // of the thing, for the administrator
}

func (t Thing) String() string { return t.Kind + ": " + t.Name }

// Of returns everything that the job has on the node.
func (n Node) Of(job uint32) []Thing {
	var all []Thing
	for _, look := range []func(uint32) []Thing{n.processes, n.links, n.files, n.directories, n.mounts, n.cgroups} {
		all = append(all, look(job)...)
	}
	return all
}

// Await looks until the jobs have nothing on the node, at most for a time. It returns what it saw last.
func (n Node) Await(ctx context.Context, jobs []uint32, most time.Duration) (found []Thing, err error) {
	for end := time.Now().Add(most); ; time.Sleep(time.Second) {
		found, err = n.ofAll(jobs)
		if err != nil || len(found) == 0 || time.Now().After(end) || ctx.Err() != nil {
			return found, err
		}
	}
}

func (n Node) ofAll(jobs []uint32) (found []Thing, err error) {
	links, err := net.Interfaces()
	n.Links = nil
	for _, l := range links {
		n.Links = append(n.Links, l.Name)
	}
	for _, job := range jobs {
		found = append(found, n.Of(job)...)
	}
	return found, err
}

// KillVM kills the QEMU of one of the job's VMs.
func (n Node) KillVM(job uint32) error {
	guest := fmt.Sprintf("guest=slurmv-%d.", job)
	isQEMU := func(pid int) bool {
		return slices.ContainsFunc(n.CommandLine(pid), func(word string) bool { return strings.HasPrefix(word, guest) })
	}
	for _, pid := range n.ProcessesOf(job) {
		if isQEMU(pid) {
			return process.SendKill(pid, func() bool { return isQEMU(pid) })
		}
	}
	return fmt.Errorf("job %d has no QEMU here", job)
}

// processes are those in the job's cgroup, which nothing leaves that a job has started.
func (n Node) processes(job uint32) (all []Thing) {
	for _, pid := range n.ProcessesOf(job) {
		all = append(all, Thing{"process", fmt.Sprintf("%d %.120s", pid, strings.Join(n.CommandLine(pid), " "))})
	}
	return all
}

// ProcessesOf returns the processes of the job, without those of the caller's step.
func (n Node) ProcessesOf(job uint32) (pids []int) {
	proc := filepath.Join(n.Root, "proc")
	own, ownErr := cgroup.StepOf(proc, n.Self)
	dirs, _ := filepath.Glob(proc + "/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		step, err := cgroup.StepOf(proc, pid)
		if err != nil || ownErr == nil && step == own {
			continue
		}
		if id, ok := n.numberOf(step.Job); ok && id == job {
			pids = append(pids, pid)
		}
	}
	return pids
}

// CommandLine returns the words of a process's command line; nil if it has ended.
func (n Node) CommandLine(pid int) []string {
	text, err := os.ReadFile(filepath.Join(n.Root, "proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
}

func (n Node) links(job uint32) (all []Thing) {
	for _, name := range n.Links {
		if its, ok := vmnet.JobOf(name); ok && its == job {
			all = append(all, Thing{"link", name})
		}
	}
	return all
}

// files are shared memory, and the marks of jobs that use an image.
func (n Node) files(job uint32) (all []Thing) {
	id := fmt.Sprint(job)
	for _, pattern := range []string{"dev/shm/slurmv-*-" + id + ".*-*", n.State + "/images/*/holders/" + id + ".*"} {
		all = append(all, n.glob("file", pattern)...)
	}
	return all
}

// directories may be in places that users can pass but not list. So the directory of a
// job's first run is looked for by its name.
func (n Node) directories(job uint32) (all []Thing) {
	for _, parent := range []string{n.State, n.Run} {
		base := filepath.Join(parent, "jobs", fmt.Sprint(job))
		found := n.glob("directory", base+".*")
		if _, err := os.Stat(filepath.Join(n.Root, base+".0")); err == nil && len(found) == 0 {
			found = []Thing{{"directory", base + ".0"}}
		}
		all = append(all, found...)
	}
	return all
}

func (n Node) glob(kind, pattern string) (all []Thing) {
	found, _ := filepath.Glob(filepath.Join(n.Root, pattern))
	for _, path := range found {
		all = append(all, Thing{kind, path})
	}
	return all
}

func (n Node) mounts(job uint32) (all []Thing) {
	mounts, _ := mountinfo.Read(n.Root)
	below := regexp.MustCompile(fmt.Sprintf(`/jobs/%d\.[0-9]+/`, job))
	for _, m := range mounts {
		if below.MatchString(m.Point + "/") {
			all = append(all, Thing{"mount", m.Point})
		}
	}
	return all
}

// cgroups are Slurm's, in version 1 and 2.
func (n Node) cgroups(job uint32) (all []Thing) {
	name := fmt.Sprintf("job_%d", job)
	for _, pattern := range []string{"*/slurm*/uid_*/", "*slurmstepd.scope/", "*.slice/*slurmstepd.scope/", "*.slice/*.slice/*slurmstepd.scope/"} {
		all = append(all, n.glob("cgroup", "sys/fs/cgroup/"+pattern+name)...)
		for _, other := range n.glob("cgroup", "sys/fs/cgroup/"+pattern+"s*") {
			if id, ok := n.numberOf(cgroup.Job(filepath.Base(other.Name))); ok && id == job {
				all = append(all, other)
			}
		}
	}
	return all
}

// Kinds counts things by their kind, in words such as "2 links, 1 process".
func Kinds(things []Thing) string {
	count := map[string]int{}
	for _, t := range things {
		count[t.Kind]++
	}
	var words []string
	for kind, n := range count {
		words = append(words, fmt.Sprintf("%d %s", n, plural(kind, n)))
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

func plural(kind string, n int) string {
	switch {
	case n == 1:
		return kind
	case strings.HasSuffix(kind, "y"):
		return strings.TrimSuffix(kind, "y") + "ies"
	case strings.HasSuffix(kind, "ss"):
		return kind + "es"
	}
	return kind + "s"
}

// Parse reads what [Thing.String] has written; ok is false for other lines.
func Parse(line string) (t Thing, ok bool) {
	kind, name, found := strings.Cut(line, ": ")
	known := []string{"process", "link", "file", "directory", "mount", "cgroup"}
	return Thing{kind, name}, found && slices.Contains(known, kind)
}
