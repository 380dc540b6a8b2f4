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
	Apps   []string `json:"apps"` // with their arguments: two of EASJ and EACJ, and two of SACJ
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
	r := record{Taken: time.Now().Format(time.DateOnly), Cores: runtime.NumCPU(), Rounds: rounds, Apps: []string{bfs.command(), cg.command(), smallBFS.command(), smallCG.command()}}
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

// All sides of a comparison have the same ranks and vCPUs. EACJ has 2 × 2 ranks on 4 vCPUs of a
// node, SACJ 4 × 2 on 8 of two nodes. EASJ leaves half of the vCPUs idle.
const (
	twinVM = "--vcpu-per-vm=2 --memory-per-vm=384M --ivshmem=2:16M"
	soleVM = "--vcpu-per-vm=1 --memory-per-vm=384M"
	bigVM  = "--vcpu-per-vm=4 --memory-per-vm=768M"
)

// scenarios measures all scenarios. The sides of a comparison are up at the same time
// and work in turns, so that all find the machine in the same state.
func (r *record) scenarios(withBare bool) error {
	for round := range r.Rounds {
		if err := r.inJob(round, withBare); err != nil {
			return err
		}
	}
	return r.acrossJobs(withBare)
}

// inJob measures a round of EASJ and EACJ in VMs of its own: emulated VMs that are alike differ by up to a half in how
// fast they compute, for as long as they live.
func (r *record) inJob(round int, withBare bool) error {
	return with([]allocation{{"big", "alice", 1, 1, bigVM}, {"small", "alice", 1, 2, twinVM}}, func(s []*session) error {
		for _, in := range inJob(s[1], s[0], withBare) {
			if err := r.round(in, round); err != nil {
				return err
			}
		}
		return nil
	})
}

// acrossJobs measures SACJ, all rounds in the same VMs.
func (r *record) acrossJobs(withBare bool) error {
	wanted := []allocation{{"big", "alice", 2, 1, bigVM}}
	for i, user := range []string{"alice", "alice", "bob", "bob"} {
		wanted = append(wanted, allocation{fmt.Sprint("job", i+1), user, 2, 1, soleVM})
	}
	return with(wanted, func(s []*session) error {
		for round := range r.Rounds {
			if err := r.round(acrossJobs(s[1:], s[0], withBare), round); err != nil {
				return err
			}
		}
		return nil
	})
}

// with gives do sessions whose VMs are up.
func with(wanted []allocation, do func([]*session) error) (err error) {
	var sessions []*session
	for _, a := range wanted {
		s, err := open(a)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		sessions = append(sessions, s)
	}
	if err := startVMs(sessions...); err != nil {
		return err
	}
	return do(sessions)
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

// round measures each side once. The rounds begin with different sides, so that no side always follows the same other
// one.
func (r *record) round(s scenario, round int) error {
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
