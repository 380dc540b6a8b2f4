package controller

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain lets the test's program play squeue, scontrol and sinfo. What they know lies in a file
// beside them.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "squeue":
		os.Exit(playSqueue())
	case "scontrol":
		os.Exit(playScontrol())
	case "sinfo":
		os.Exit(playSinfo())
	case "become":
		os.Exit(playRoot(os.Args[1]))
	default:
		os.Exit(m.Run())
	}
}

// A world is what slurmctld knows.
type world struct {
	Jobs     map[uint32]job
	Nodes    map[string]node
	Down     bool            // it does not answer
	Mute     bool            // it answers, but does not list its jobs
	Deaf     bool            // it takes no change of a job
	Conf     string          // its settings, as scontrol shows them
	Notified []string        // JOB TEXT
	Next     map[string]node // what nodes write once somebody has read their Comments
	Calls    []string
}

type job struct {
	Restart                    uint32
	State, Nodes, AdminComment string
	HetJob                     uint32   // the leader of its heterogeneous job; 0 for other jobs
	Steps                      []string // such as 0 and batch
}

type node struct {
	Comment string
}

// cluster makes the directory of Slurm's commands.
func cluster(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"squeue", "scontrol", "sinfo"} {
		if err := os.Link(self, filepath.Join(dir, name)); err != nil {
			text, _ := os.ReadFile(self)
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	change(t, dir, func(w *world) { *w = world{Jobs: map[uint32]job{}, Nodes: map[string]node{}} })
	return dir
}

// change changes what slurmctld knows.
func change(t *testing.T, dir string, do func(*world)) world {
	t.Helper()
	defer alone(dir)()
	var w world
	text, err := os.ReadFile(filepath.Join(dir, "world"))
	if err == nil {
		err = json.Unmarshal(text, &w)
	}
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	do(&w)
	put(dir, w)
	return w
}

// alone keeps other processes away from the file until its result is called.
func alone(dir string) (unlock func()) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		panic(err)
	}
	return func() { f.Close() }
}

func put(dir string, w world) {
	text, err := json.Marshal(w)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "new"), text, 0o644)
	}
	if err == nil {
		err = os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "world"))
	}
	if err != nil {
		panic(err)
	}
}

func open(dir string) world {
	var w world
	text, err := os.ReadFile(filepath.Join(dir, "world"))
	if err == nil {
		err = json.Unmarshal(text, &w)
	}
	if err != nil {
		panic(err)
	}
	w.Calls = append(w.Calls, strings.Join(os.Args, " "))
	put(dir, w)
	return w
}

// here is the directory of this program.
func here() string {
	self, _ := os.Executable()
	return filepath.Dir(self)
}

func option(name string) string {
	for _, arg := range os.Args {
		if value, found := strings.CutPrefix(arg, "--"+name+"="); found {
			return value
		}
	}
	return ""
}

func unreachable() int {
	fmt.Fprintln(os.Stderr, "Unable to contact slurm controller (connect failure)")
	return 1
}

func playSqueue() int {
	defer alone(here())()
	w := open(here())
	if w.Down {
		return unreachable()
	}
	if slices.Contains(os.Args, "--steps") {
		return listSteps(w)
	}
	format := option("Format")
	if asked, _ := strconv.Atoi(option("jobs")); asked != 0 {
		if _, found := w.Jobs[uint32(asked)]; !found {
			fmt.Fprintln(os.Stderr, "slurm_load_jobs error: Invalid job id specified")
			return 1
		}
	} else if w.Mute {
		return unreachable()
	}
	for id, j := range w.Jobs {
		asked := option("jobs") == "" || option("jobs") == fmt.Sprint(id)
		if !asked || option("states") != "all" && !slices.Contains(strings.Split(option("states"), ","), j.State) {
			continue
		}
		if !strings.Contains(format, "admin_comment") {
			fmt.Printf("%20d%20d\n", id, j.Restart)
			continue
		}
		_, mark, _ := strings.Cut(format, "admin_comment:0")
		het := "N/A"
		if j.HetJob != 0 {
			het = fmt.Sprint(j.HetJob)
		}
		fmt.Printf("%d|%d|%s|%d|%s|100|%s|%s%s\n", id, id, het, j.Restart, j.State, j.Nodes, j.AdminComment, mark)
	}
	return 0
}

func listSteps(w world) int {
	for id, j := range w.Jobs {
		for _, step := range j.Steps {
			fmt.Printf("%20d|%128s\n", id, fmt.Sprintf("%d.%s", id, step))
		}
	}
	return 0
}

func playScontrol() int {
	dir := here()
	defer alone(dir)()
	w := open(dir)
	if w.Down {
		return unreachable()
	}
	if slices.Equal(os.Args[1:], []string{"show", "config"}) {
		fmt.Print(w.Conf)
		return 0
	}
	switch os.Args[1] {
	case "update":
		if name, found := strings.CutPrefix(os.Args[2], "nodename="); found {
			w.Nodes[name] = node{Comment: strings.TrimPrefix(os.Args[3], "comment=")}
			break
		}
		id, _ := strconv.Atoi(strings.TrimPrefix(os.Args[2], "jobid="))
		j, found := w.Jobs[uint32(id)]
		if !found || w.Deaf {
			fmt.Fprintln(os.Stderr, "Invalid job id specified")
			return 1
		}
		j.AdminComment = strings.TrimPrefix(os.Args[3], "admincomment=")
		w.Jobs[uint32(id)] = j
	case "notify":
		w.Notified = append(w.Notified, strings.Join(os.Args[2:], " "))
	default:
		for name, n := range w.Nodes {
			fmt.Printf("NodeName=%s Arch=x86_64 State=IDLE ThreadsPerCore=1 BootTime=1 SlurmdStartTime=1 Comment=%s\n", name, n.Comment)
		}
	}
	put(dir, w)
	return 0
}

func playSinfo() int {
	defer alone(here())()
	w := open(here())
	if w.Down {
		return unreachable()
	}
	_, mark, _ := strings.Cut(option("Format"), "comment:0")
	fmt.Printf("%s|%s%s\n", option("nodes"), w.Nodes[option("nodes")].Comment, mark)
	maps.Copy(w.Nodes, w.Next)
	put(here(), w)
	return 0
}
