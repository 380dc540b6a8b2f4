package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/bench/stats"
)

// A job is the medians of several runs of one shape. Times are in seconds since
// slurm-v-run --start, unless the field says otherwise.
type job struct {
	nodes, vms int // vms is per node
	rounds     int

	plain      float64 // duration of a step on these nodes that runs `true`
	firstAgent float64 // first message of any agent
	lastAgent  float64
	lastVMs    float64 // the last node's VMs are up, and the keeper knows them
	mapSent    float64 // srun has taken the map
	done       float64 // the last node has it
	free       float64 // seconds from the end of the job until the nodes are free

	messages, lines, bytes float64 // from each node
	mapLines, mapBytes     float64 // to each node
}

// fields are the fields that are medians.
var fields = []func(*job) *float64{
	func(j *job) *float64 { return &j.plain }, func(j *job) *float64 { return &j.firstAgent },
	func(j *job) *float64 { return &j.lastAgent }, func(j *job) *float64 { return &j.lastVMs },
	func(j *job) *float64 { return &j.mapSent }, func(j *job) *float64 { return &j.done },
	func(j *job) *float64 { return &j.free }, func(j *job) *float64 { return &j.messages },
	func(j *job) *float64 { return &j.lines }, func(j *job) *float64 { return &j.bytes },
	func(j *job) *float64 { return &j.mapLines }, func(j *job) *float64 { return &j.mapBytes },
}

func readJobs(dir string) ([]job, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*-*-*.log"))
	if err != nil {
		return nil, err
	}
	runs := map[[2]int][]job{}
	for _, file := range files {
		j, err := readJob(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		shape := [2]int{j.nodes, j.vms}
		runs[shape] = append(runs[shape], j)
	}
	var jobs []job
	for shape, of := range runs {
		m := job{nodes: shape[0], vms: shape[1], rounds: len(of)}
		for _, field := range fields {
			var values []float64
			for i := range of {
				values = append(values, *field(&of[i]))
			}
			*field(&m) = stats.Median(values)
		}
		jobs = append(jobs, m)
	}
	slices.SortFunc(jobs, func(a, b job) int { return cmp.Or(a.vms-b.vms, a.nodes-b.nodes) })
	return jobs, nil
}

// readJob reads the log of one run; see meter and job.sh for its lines.
func readJob(file string) (j job, err error) {
	if _, err := fmt.Sscanf(filepath.Base(file), "%d-%d-", &j.nodes, &j.vms); err != nil {
		return j, err
	}
	in, err := os.Open(file)
	if err != nil {
		return j, err
	}
	defer in.Close()
	marks, agents := map[string]float64{}, map[string]bool{}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		var nanos int64
		if len(words) < 2 {
			continue
		}
		if _, err := fmt.Sscan(words[0], &nanos); err != nil {
			return j, err
		}
		now := float64(nanos%1e15) / 1e9
		switch {
		case len(words) == 2:
			marks[words[1]] = now
		case len(words) == 7:
			j.frame(now-marks["start"], words, agents)
		}
	}
	if j.done == 0 || marks["free"] == 0 {
		return j, errors.New("the run did not come to its end")
	}
	j.plain, j.free = marks["plain-end"]-marks["plain"], marks["free"]-marks["end"]
	for _, sum := range []*float64{&j.messages, &j.lines, &j.bytes} {
		*sum /= float64(j.nodes)
	}
	return j, lines.Err()
}

// frame reads the line of a message: NANOSECONDS STREAM BYTES NODE KIND SEQUENCE
// PART/PARTS.
func (j *job) frame(since float64, words []string, agents map[string]bool) {
	var size float64
	_, _ = fmt.Sscan(words[2], &size)
	if words[1] == "in" {
		j.mapSent, j.mapLines, j.mapBytes = since, j.mapLines+1, j.mapBytes+size
		return
	}
	part, parts, _ := strings.Cut(words[6], "/")
	j.lines, j.bytes = j.lines+1, j.bytes+size
	if part == parts {
		j.messages++
	}
	if node := words[3]; !agents[node] {
		agents[node] = true
		j.lastAgent = since
		if len(agents) == 1 {
			j.firstAgent = since
		}
	}
	switch words[4] {
	case "vms":
		j.lastVMs = since
	case "ready":
		j.done = since
	}
}
