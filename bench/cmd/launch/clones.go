package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// clonesResult counts, for each property that must differ between machines, the different
// values among the VMs from one template.
type clonesResult struct {
	VMs       int            `json:"vms"`
	Different map[string]int `json:"different"`
	Clock     float64        `json:"clock_seconds"` // largest error of a clock, including the time of a write
}

// identity names the values that askIdentity prints, in order.
var identity = []string{"host name", "machine id", "boot id", "MAC", "address", "host key", "random numbers"}

// askIdentity also writes the guest's time into files of the host, five times. The files'
// modification times are the host's time.
const askIdentity = `set -- $(hostname) $(cat /etc/machine-id /proc/sys/kernel/random/boot_id)
set -- "$@" $(cat /sys/class/net/e*/address | sort | head -n 1) $(ip -4 -o addr show scope global | awk '{ print $4 }' | head -n 1)
echo "$@" $(md5sum </etc/ssh/ssh_host_ed25519_key.pub | cut -c1-32) $(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
for i in 1 2 3 4 5; do date +%s.%N >"clock.$1.$i"; sleep 0.3; done`

func measureClones(ctx context.Context, b *bench, r *results) error {
	c, err := up(ctx, shape{nodes: 4, cpus: 8})
	if err != nil {
		return err
	}
	if err := c.makeTemplates(ctx, b, 4); err != nil {
		return err
	}
	result := clonesResult{VMs: 32, Different: map[string]int{}}
	if b.quick {
		result.VMs = 8
	}
	l, err := c.launch(ctx, job{nodes: 4, vms: result.VMs / 4, options: []string{"--vm-start=warm"}, program: askIdentity})
	if err != nil {
		return err
	}
	if err := result.read(l.answers, filepath.Join(c.dir, "home", "alice", "bench")); err != nil {
		return err
	}
	b.say("different among %d: %v, clocks within %.3f s", result.VMs, result.Different, result.Clock)
	r.Clones = &result
	return nil
}

// read counts the different values.
func (r *clonesResult) read(answers, dir string) error {
	if n := strings.Count(answers, "\n"); n != r.VMs {
		return fmt.Errorf("%d of %d VMs say what they are", n, r.VMs)
	}
	seen := map[string]map[string]bool{}
	for _, name := range identity {
		seen[name] = map[string]bool{}
	}
	for line := range strings.Lines(answers) {
		fields := strings.Fields(line)
		if len(fields) != len(identity) {
			return fmt.Errorf("a VM says of itself: %q", line)
		}
		for i, name := range identity {
			seen[name][fields[i]] = true
		}
		off, err := clockOff(filepath.Join(dir, "clock."+fields[0]))
		if err != nil {
			return err
		}
		r.Clock = max(r.Clock, off)
	}
	for name, values := range seen {
		r.Different[name] = len(values)
	}
	return nil
}

// clockOff returns the difference between a guest's times and the host's when it got
// them, in seconds. It takes the least of five, since each write takes a while to reach
// the host.
func clockOff(path string) (float64, error) {
	off := math.Inf(1)
	for i := range 5 {
		name := fmt.Sprintf("%s.%d", path, i+1)
		text, err := os.ReadFile(name)
		if err != nil {
			return 0, err
		}
		info, err := os.Stat(name)
		if err != nil {
			return 0, err
		}
		at, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		off = min(off, math.Abs(float64(info.ModTime().UnixNano())/1e9-at))
	}
	return off, nil
}
