package controller

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/letter"
	"github.com/slurm-v/slurm-v/internal/filetest"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
)

// Slurm's commands for programs that are killed. They are shell scripts, because they run some
// thousand times. Their files are in the directory world: jobs/JOB has the restarts, the state and the
// nodes of a job, comments/JOB its AdminComment, nodes/NODE the Comment of a node.
const (
	squeueScript = `#!/bin/sh
cd WORLD || exit 1
for word; do
	case $word in
	--jobs=*) only=${word#--jobs=} ;;
	--Format=*admin_comment:0*) mark=${word##*admin_comment:0} ;;
	esac
done
[ -z "$only" ] || [ -e "jobs/$only" ] || { echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }
for file in jobs/${only:-*}; do
	[ -e "$file" ] || continue
	read -r restart state nodes <"$file"
	job=${file#jobs/} comment=
	[ -e "comments/$job" ] && read -r comment <"comments/$job"
	if [ -n "$mark" ]; then
		echo "$job|$job|N/A|$restart|$state|100|$nodes|$comment$mark"
	else
		echo "$job $restart"
	fi
done
`
	scontrolScript = `#!/bin/sh
cd WORLD || exit 1
case "$1 $2" in
"update jobid="*)
	job=${2#jobid=}
	[ -e "jobs/$job" ] || { echo "Invalid job id specified" >&2; exit 1; }
	printf '%s\n' "${3#admincomment=}" >"new.$job" && mv "new.$job" "comments/$job" ;;
*"show node"* | "--oneliner show"*)
	for file in nodes/*; do
		read -r comment <"$file"
		echo "NodeName=${file#nodes/} Arch=x86_64 State=IDLE ThreadsPerCore=1 BootTime=1 SlurmdStartTime=1 Comment=$comment"
	done ;;
esac
`
)

// A crash is a place for a controller that is killed, and what slurmctld and the nodes know there.
type crash struct {
	*testing.T
	dir     string // with the directories state and world
	program string // testdata/script
	cfg     config.Config
}

const crashConfig = `[slurm]
bin = "DIR/bin"
[fabric]
key = "DIR/key"
state = "DIR/state"
cooling = 0
[fabric.vni]
pool = "1024-1026"
[fabric.pkey]
pool = "0x1000-0x1002"
opensm_command = ["/bin/true"]
`

func newCrash(t *testing.T, program string) *crash {
	t.Helper()
	dir := t.TempDir()
	c := &crash{T: t, dir: dir, program: program}
	for _, below := range []string{"bin", "state", "world/jobs", "world/comments", "world/nodes"} {
		c.check(os.MkdirAll(c.path(below), 0o755))
	}
	c.write("bin/squeue", strings.ReplaceAll(squeueScript, "WORLD", c.path("world")))
	c.write("bin/scontrol", strings.ReplaceAll(scontrolScript, "WORLD", c.path("world")))
	c.check(os.Chmod(c.path("bin/squeue"), 0o755))
	c.check(os.Chmod(c.path("bin/scontrol"), 0o755))
	c.write("key", letter.NewKey()+"\n")
	c.check(os.Chmod(c.path("key"), 0o600))
	c.write("slurm.conf", "ClusterName=c\n")
	c.Setenv("SLURM_CONF", c.path("slurm.conf"))
	c.write("slurmv.toml", strings.ReplaceAll(crashConfig, "DIR", dir))
	var err error
	c.cfg, err = config.Load(c.path("slurmv.toml"))
	c.check(err)
	return c
}

func (c *crash) path(below string) string { return filepath.Join(c.dir, below) }

func (c *crash) check(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (c *crash) write(below, text string) {
	c.Helper()
	c.check(os.WriteFile(c.path(below), []byte(text), 0o644))
}

// save copies the directories, and restore puts the copy back.
func (c *crash) save() {
	c.check(os.CopyFS(c.path("saved/state"), os.DirFS(c.path("state"))))
	c.check(os.CopyFS(c.path("saved/world"), os.DirFS(c.path("world"))))
}

func (c *crash) restore() {
	for _, below := range []string{"state", "world"} {
		c.check(os.RemoveAll(c.path(below)))
		c.check(os.CopyFS(c.path(below), os.DirFS(c.path("saved/"+below))))
	}
}

// controller is that of a new process.
func (c *crash) controller() *Controller {
	c.Helper()
	ctl, err := Open(c.Context(), c.cfg, func(s string) { c.Log(s) })
	c.check(err)
	return ctl
}

// starts lets slurmctld know that job 7 begins, and ends that it is over.
func (c *crash) starts() { c.write("world/jobs/7", "0 RUNNING n[1-2]\n") }

func (c *crash) ends() { c.check(os.Remove(c.path("world/jobs/7"))) }

func (c *crash) reserve() {
	c.Helper()
	w, err := fabric.ParseWish("pkey:1,vni:1,vms:1,vfs:1")
	c.check(err)
	_, err = c.controller().Reserve(c.Context(), hook(run(7, 0)), w)
	c.check(err)
}

func (c *crash) release() {
	c.Helper()
	c.check(c.controller().Release(c.Context(), hook(run(7, 0))))
}

func (c *crash) sweep() {
	c.Helper()
	_, err := c.controller().Sweep(c.Context())
	c.check(err)
}

// confirm makes a node say that it has nothing of job 7 any more.
func (c *crash) confirm(node string) {
	c.Helper()
	key, err := letter.Load(c.cfg.Fabric.Key)
	c.check(err)
	text, err := letter.Seal(key, letter.NodeSubject("c", node), letter.Statement{Node: node, Released: []journal.ID{id(7, 0)}})
	c.check(err)
	c.write("world/nodes/"+node, letter.PutBlock("", text)+"\n")
}

// told returns the tags that the job's nodes have read in its record, by kind.
func (c *crash) told() map[fabric.Kind][]fabric.Tag {
	c.Helper()
	key, err := letter.Load(c.cfg.Fabric.Key)
	c.check(err)
	text, err := os.ReadFile(c.path("world/comments/7"))
	var r fabric.Reservation
	if err == nil {
		err = letter.Find(key, letter.ReservationSubject("c", id(7, 0)), string(text), &r)
	}
	if err != nil {
		return nil // it has none
	}
	return map[fabric.Kind][]fabric.Tag{fabric.VNI: r.Tags(fabric.VNI), fabric.PKey: r.Tags(fabric.PKey)}
}

// free returns how many tags of each kind another job can have.
func (c *crash) free() (free map[fabric.Kind]int, taken map[fabric.Kind][]fabric.Tag) {
	c.Helper()
	free, taken = map[fabric.Kind]int{}, map[fabric.Kind][]fabric.Tag{}
	states, err := c.controller().Pools(c.Context(), fabric.PoolsOf(c.cfg.Fabric, "main"))
	c.check(err)
	for _, s := range states {
		free[s.Pool.Kind] = 3 - len(s.Taken)
		for _, t := range s.Taken {
			taken[s.Pool.Kind] = append(taken[s.Pool.Kind], t.Tag)
		}
	}
	return free, taken
}

// mustHold checks that nobody can get what the nodes of job 7 have.
func (c *crash) mustHold(when string) {
	c.Helper()
	_, taken := c.free()
	for kind, tags := range c.told() {
		for _, tag := range tags {
			if !slices.Contains(taken[kind], tag) {
				c.Errorf("%s: the nodes of job 7 have %s %d, and another job can get it", when, kind, tag)
			}
		}
	}
}

// mustBeWhole ends job 7, and checks that its tags come back when both nodes have confirmed, and not
// before; that no tag is lost; and that no file stays but those that belong there.
func (c *crash) mustBeWhole(when string) {
	c.Helper()
	if _, err := os.Stat(c.path("world/jobs/7")); err == nil {
		c.ends()
	}
	c.release()
	c.sweep()
	if _, err := os.Stat(c.path("world/nodes/n2")); err != nil {
		c.mustHold(when + ", after the job's end")
		c.confirm("n1")
		c.sweep()
		c.mustHold(when + ", after one node has confirmed")
		c.confirm("n2")
	}
	c.sweep()
	c.sweep() // which finds nothing new
	entries, err := c.controller().Entries(c.Context(), 0)
	if free, _ := c.free(); err != nil || !maps.Equal(free, map[fabric.Kind]int{fabric.VNI: 3, fabric.PKey: 3}) || len(entries) > 0 {
		c.Errorf("%s: at the end %v tags are free, and the ledger has %+v; %v", when, free, entries, err)
	}
	files, err := os.ReadDir(c.path("state"))
	c.check(err)
	for _, f := range files {
		if !slices.Contains([]string{"slurm-v-fabric.db", "slurm-v-fabric.db.mark", sweepLock, managersLock, lingerLock}, f.Name()) {
			c.Errorf("%s: %s stays", when, f.Name())
		}
	}
}

// The scripts of slurmctld are killed before each of their steps in turn.
func TestScriptsThatAreKilledAtAnyStep(t *testing.T) {
	tests := map[string]struct {
		before func(*crash)
		script string
		after  func(*crash, string) // with new processes
	}{
		"reserve, and slurmctld calls it again": {
			before: func(c *crash) { c.starts() },
			script: "reserve",
			after: func(c *crash, when string) {
				told := c.told()
				c.reserve()
				if again := c.told(); told != nil && !maps.EqualFunc(told, again, slices.Equal) {
					c.Errorf("%s: job 7 is told %v, and then %v", when, told, again)
				}
				c.mustHold(when)
			},
		},
		"reserve, and the job is over": {
			before: func(c *crash) { c.starts() },
			script: "reserve",
			after:  func(c *crash, _ string) {},
		},
		"release": {
			before: func(c *crash) { c.starts(); c.reserve(); c.ends() },
			script: "release",
			after:  func(c *crash, when string) { c.mustHold(when) },
		},
		"sweep, when one node has confirmed": {
			before: func(c *crash) { c.starts(); c.reserve(); c.ends(); c.release(); c.confirm("n1") },
			script: "sweep",
			after:  func(c *crash, when string) { c.mustHold(when) },
		},
		"sweep, when all have confirmed": {
			before: func(c *crash) {
				c.starts()
				c.reserve()
				c.ends()
				c.release()
				c.confirm("n1")
				c.confirm("n2")
			},
			script: "sweep",
			after:  func(c *crash, _ string) {},
		},
		"sweep, when slurmctld has lost the job": {
			before: func(c *crash) { c.starts(); c.reserve(); c.ends() },
			script: "sweep",
			after:  func(c *crash, when string) { c.mustHold(when) },
		},
	}
	program := filepath.Join(t.TempDir(), "script")
	filetest.Build(t, nil, []string{"go", "build", "-o", program, "./testdata/script"})
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv(slurm.EnvCluster, "c")
			c := newCrash(t, program)
			tt.before(c)
			c.save()
			env := os.Environ()
			for key, value := range environmentOfProlog() {
				env = append(env, key+"="+value)
			}
			env = append(env, fabric.WishVariable+"=pkey:1,vni:1,vms:1,vfs:1")
			n := 1
			for over := false; !over && !t.Failed(); n++ {
				c.restore()
				over = runUntil(t, n, c.path("state"), env, c.program, tt.script, c.path("slurmv.toml"))
				when := fmt.Sprintf("%s killed before step %d", tt.script, n)
				tt.after(c, when)
				c.mustBeWhole(when)
			}
			t.Logf("%d steps", n-2)
			if n < 5 {
				t.Error("it is too few: is the program traced?")
			}
		})
	}
}
