package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// directory, below a user's home, has the programs.
const directory = "bench-apps"

// A record is the input of the report.
type record struct {
	Taken  string   `json:"taken"` // the day
	Cores  int      `json:"cores"`
	Load   float64  `json:"load"` // running processes on the machine before the first VM
	KVM    bool     `json:"kvm"`
	Rounds int      `json:"rounds"`
	Apps   []string `json:"apps"` // with their arguments
	Series []series `json:"series"`
}

// A series is the times of one app, in one scenario, on one side of the comparison.
type series struct {
	Scenario string    `json:"scenario"`
	Side     string    `json:"side"`
	App      string    `json:"app"`
	Seconds  []float64 `json:"seconds"`
}

func measure(rounds int, withBare bool) (record, error) {
	r := record{Taken: time.Now().Format(time.DateOnly), Cores: runtime.NumCPU(), Rounds: rounds, Apps: []string{bfs.command(), cg.command()}}
	if _, err := fmt.Sscan(readLoad(), &r.Load); err != nil {
		return record{}, err
	}
	for _, user := range []string{"alice", "bob"} {
		if err := build(user); err != nil {
			return record{}, err
		}
	}
	return r, r.scenarios(withBare)
}

func readLoad() string {
	text, _ := os.ReadFile("/proc/loadavg")
	return string(text)
}

// build compiles the apps on the login node, once for nodes and VMs: both have the same
// MPI.
func build(user string) error {
	for _, a := range []app{bfs, cg} {
		source, err := os.Open("examples/" + a.name + ".c")
		if err != nil {
			return err
		}
		defer source.Close()
		script := fmt.Sprintf("mkdir -p %s && cd %[1]s && cat >%s.c && mpicc -O2 -o %[2]s %[2]s.c -lm", directory, a.name)
		compile := exec.Command("scripts/cluster", "run", "--user", user, "--", "bash", "-c", script)
		compile.Stdin, compile.Stderr = source, os.Stderr
		if err := compile.Run(); err != nil {
			return fmt.Errorf("compile %s as %s: %w", a.name, user, err)
		}
	}
	return nil
}

// Both sides of a comparison have the same ranks and vCPUs. EACJ has 2 × 4 ranks on 8
// vCPUs, SACJ 4 × 2. EASJ leaves half of the vCPUs idle on both sides.
const (
	twinVM = "--vcpu-per-vm=2 --memory-per-vm=384M --ivshmem=2:1M"
	soleVM = "--vcpu-per-vm=1 --memory-per-vm=384M --ivshmem=1:1M"
	bigVM  = "--vcpu-per-vm=4 --memory-per-vm=768M"
)

// scenarios measures all scenarios. Both sides of a comparison are up at the same time
// and work in turns, so that both find the machine in the same state.
func (r *record) scenarios(withBare bool) (err error) {
	reference, err := open("big", "alice", 1, bigVM)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reference.close()) }()
	if err := r.inJob(reference, withBare); err != nil {
		return err
	}
	return r.acrossJobs(reference, withBare)
}

func (r *record) inJob(reference *session, withBare bool) (err error) {
	job, err := open("small", "alice", 2, twinVM)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, job.close()) }()
	if err := startVMs(reference, job); err != nil {
		return err
	}
	for _, s := range inJob(job, reference, withBare) {
		if err := r.scenario(s); err != nil {
			return err
		}
	}
	return nil
}

func (r *record) acrossJobs(reference *session, withBare bool) (err error) {
	var jobs []*session
	for i, user := range []string{"alice", "alice", "bob", "bob"} {
		job, err := open(fmt.Sprint("job", i+1), user, 1, soleVM)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, job.close()) }()
		jobs = append(jobs, job)
	}
	if err := startVMs(jobs...); err != nil {
		return err
	}
	return r.scenario(acrossJobs(jobs, reference, withBare))
}

// startVMs starts the VMs of one job after those of another: guest kernels calibrate
// their clocks while they boot, and need a CPU for that.
func startVMs(sessions ...*session) error {
	for _, s := range sessions {
		if _, err := s.run("slurm-v-run -n 1 true"); err != nil {
			return err
		}
	}
	return inAll(sessions, checkClocks)
}

// inAll calls do for all sessions at once.
func inAll(sessions []*session, do func(*session) error) error {
	var all sync.WaitGroup
	failed := make([]error, len(sessions))
	for i, s := range sessions {
		all.Go(func() { failed[i] = do(s) })
	}
	all.Wait()
	return errors.Join(failed...)
}

// scenario changes which side comes first, so that no side always follows the same other
// one.
func (r *record) scenario(s scenario) error {
	for round := range r.Rounds {
		for i := range s.sides {
			side := s.sides[(round+i)%len(s.sides)]
			for _, step := range side.steps {
				samples, err := step.do()
				if err != nil {
					return fmt.Errorf("%s, %s: %w", s.name, side.name, err)
				}
				for _, found := range samples {
					fmt.Fprintf(os.Stderr, "bench/applications: %s, %s: %s %.2f s\n", s.name, side.name, found.app, found.seconds)
					r.add(s.name, side.name, found)
				}
			}
		}
	}
	return nil
}

func (r *record) add(scenario, side string, found sample) {
	for i := range r.Series {
		s := &r.Series[i]
		if s.Scenario == scenario && s.Side == side && s.App == found.app {
			s.Seconds = append(s.Seconds, found.seconds)
			return
		}
	}
	r.Series = append(r.Series, series{scenario, side, found.app, []float64{found.seconds}})
}
