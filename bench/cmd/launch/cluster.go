package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/report"
)

// cpus is the number of CPUs, which all nodes of the cluster share.
var cpus = runtime.NumCPU()

// patience bounds a launch.
const patience = 30 * time.Minute

// A cluster exists for one part.
type cluster struct {
	dir  string // of the cluster
	site string // its original slurmv.toml
}

// shape is the size of a cluster: the number of nodes, and the CPUs that each node claims
// to have, with 1000 MB of memory per CPU. rate limits what a node reads from the file
// server in a second, such as 50M; "" means no limit.
type shape struct {
	nodes, cpus int
	rate        string
}

// up makes a cluster of this shape, in place of any other.
func up(ctx context.Context, s shape) (*cluster, error) {
	c, err := start(ctx, s)
	if err != nil {
		return nil, err
	}
	// libvirt examines QEMU once on each node, which takes seconds: do it now.
	_, err = c.launch(ctx, cold(s.nodes, 1))
	return c, err
}

// start is up without a first VM.
func start(ctx context.Context, s shape) (*cluster, error) {
	down()
	c := &cluster{dir: os.Getenv("SLURMV_CLUSTER_DIR")}
	err := errors.Join(os.Setenv("SLURMV_NODE_CPUS", strconv.Itoa(s.cpus)), os.Setenv("SLURMV_SHARED_RATE", s.rate))
	if err != nil {
		return nil, err
	}
	if _, err = script(ctx, "up", "--nodes", strconv.Itoa(s.nodes)); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(c.conf())
	c.site = string(text)
	return c, err
}

func down() { _, _ = script(context.Background(), "down") }

func (c *cluster) conf() string { return filepath.Join(c.dir, "etc", "slurm-v", "slurmv.toml") }

// configure adds sections to the site's configuration, until the next call.
func (c *cluster) configure(more string) error {
	return os.WriteFile(c.conf(), []byte(c.site+"\n"+more), 0o644)
}

// script runs scripts/cluster.
func script(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "scripts/cluster", args...)
	var words bytes.Buffer
	cmd.Stderr = &words
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("scripts/cluster %s: %w\n%s", strings.Join(args, " "), err, words.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}

// shell runs a command of the shell as alice.
func shell(ctx context.Context, command string) (string, error) {
	return script(ctx, "run", "--", "bash", "-c", command)
}

// cpuSeconds returns the CPU time that the hosts of the cluster have used so far, or one of them has.
func cpuSeconds(ctx context.Context, host ...string) (float64, error) {
	text, err := script(ctx, append([]string{"cpu"}, host...)...)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(text, 64)
}

// cpuUse returns a function that adds to l the CPU time since.
func cpuUse(ctx context.Context) (since func(l *launch) error, err error) {
	all, err1 := cpuSeconds(ctx)
	ctl, err2 := cpuSeconds(ctx, "ctl")
	return func(l *launch) error {
		allNow, err1 := cpuSeconds(ctx)
		ctlNow, err2 := cpuSeconds(ctx, "ctl")
		l.CPU, l.Controller = allNow-all, ctlNow-ctl
		return errors.Join(err1, err2)
	}, errors.Join(err1, err2)
}

// A job is what is launched.
type job struct {
	nodes, vms int // VMs on each node
	options    []string
	during     func() error // called while the VMs are up; may be nil
	program    string       // of the shell, which each VM runs once; may be ""
}

// memory is the memory of each VM.
const memory = "--memory-per-vm=384M"

// cold is a job whose VMs boot.
func cold(nodes, vms int) job {
	return job{nodes: nodes, vms: vms, options: []string{"--vm-start=cold"}}
}

func (j job) arguments() string {
	return fmt.Sprintf("--nodes=%d --vm-per-node=%d %s --vcpu-per-vm=1 --vm-ready-timeout=1800 --time=60 %s",
		j.nodes, j.vms, memory, strings.Join(j.options, " "))
}

// A launch is the measured start of one job's VMs.
type launch struct {
	Seconds    float64 `json:"seconds"`                          // from the request of the step until all VMs know each other
	CPU        float64 `json:"cpu_seconds"`                      // of all hosts of the cluster during that time
	Controller float64 `json:"controller_cpu_seconds,omitempty"` // of these the host of slurmctld, which has the cloud's services, too

	nodes   []nodeagent.NodeVMs
	answers string // of the program
}

// floor returns the time that the machine's CPUs would need without ever waiting.
func (l launch) floor() float64 { return l.CPU / float64(cpus) }

// batch starts its VMs when the file go appears, and ends when the file over does. Its tasks
// are not bound to CPUs, since the nodes claim more CPUs than the machine has.
const batch = `#!/bin/bash
echo >begun
until [[ -e go ]]; do sleep 0.05; done
slurm-v-run -N1 -n1 true || echo >failed
slurmv report --output json >report.json
[[ ! -e program ]] || slurm-v-run --quiet --cpu-bind=none -n "$(<tasks)" sh ./program >answers
echo >up
until [[ -e over ]]; do sleep 0.1; done
`

// launch starts the VMs of a job in an existing allocation, and waits for the job's end
// and until the nodes are free again.
func (c *cluster) launch(ctx context.Context, j job) (l launch, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	dir := filepath.Join(c.dir, "home", "alice", "bench")
	id, err := c.submit(ctx, j)
	if err != nil {
		return launch{}, err
	}
	defer func() { err = errors.Join(err, c.end(context.WithoutCancel(ctx), dir, id)) }()
	if err := await(ctx, filepath.Join(dir, "begun")); err != nil { // Slurm has started it on its nodes
		return launch{}, err
	}
	since, err := cpuUse(ctx)
	if err != nil {
		return launch{}, err
	}
	if err := errors.Join(touch(dir, "go"), awaitReady(ctx, dir), since(&l)); err != nil {
		return launch{}, err
	}
	if err := errors.Join(await(ctx, filepath.Join(dir, "up")), l.read(dir)); err != nil {
		return launch{}, err
	}
	if j.during != nil {
		err = j.during()
	}
	return l, err
}

func (c *cluster) submit(ctx context.Context, j job) (id string, err error) {
	files := "rm -rf bench && mkdir bench && cat >bench/job <<'END'\n" + batch + "END\n"
	if j.program != "" {
		files += fmt.Sprintf("echo %d >bench/tasks; cat >bench/program <<'END'\n%s\nEND\n", j.nodes*j.vms, j.program)
	}
	if _, err := shell(ctx, files); err != nil {
		return "", err
	}
	return shell(ctx, "cd bench && sbatch --parsable --output=out "+j.arguments()+" job")
}

// read reads the record of the launch.
func (l *launch) read(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "failed")); err == nil {
		out, _ := os.ReadFile(filepath.Join(dir, "out"))
		return fmt.Errorf("the VMs did not come up:\n%s", out)
	}
	answers, _ := os.ReadFile(filepath.Join(dir, "answers"))
	l.answers = string(answers)
	text, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err == nil {
		err = json.Unmarshal(text, &l.nodes)
	}
	l.Seconds = report.Summarize(l.nodes).Ready.Seconds()
	return err
}

// end returns when nothing of the job is left on the nodes.
func (c *cluster) end(ctx context.Context, dir, id string) error {
	if err := touch(dir, "over"); err != nil {
		return err
	}
	for ctx.Err() == nil {
		left, err := shell(ctx, "squeue --noheader --jobs="+id+" 2>/dev/null || true")
		if err != nil || left == "" {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
	return ctx.Err()
}

// awaitReady returns when slurm-v-run has said that the VMs are ready, or that they have
// failed.
func awaitReady(ctx context.Context, dir string) error {
	for ctx.Err() == nil {
		out, _ := os.ReadFile(filepath.Join(dir, "out"))
		if _, err := os.Stat(filepath.Join(dir, "up")); err == nil || bytes.Contains(out, []byte(" ready in ")) {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("the VMs do not come up: %w", ctx.Err())
}

func touch(dir, name string) error {
	return os.WriteFile(filepath.Join(dir, name), nil, 0o644)
}

// await returns when the file exists.
func await(ctx context.Context, path string) error {
	for ctx.Err() == nil {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("%s does not come: %w", path, ctx.Err())
}
