package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// jobsResult is the result of bench/image-cache.
type jobsResult struct {
	ImageBytes int64       `json:"image_bytes"`
	Rate       string      `json:"rate"`
	Rounds     []jobsRound `json:"rounds"`
}

// A jobsRound is a number of jobs with one VM each that start at once.
type jobsRound struct {
	Round   string  `json:"round"` // one, cached or cold
	Jobs    int     `json:"jobs"`
	Bytes   int64   `json:"bytes"` // read from the file server
	Seconds float64 `json:"seconds"`
	Image   float64 `json:"image_seconds"` // longest time that a job waited for its image
	Copied  int     `json:"copied"`        // number of jobs that copied the image
}

// round returns the round of that name.
func (j jobsResult) round(name string) (found jobsRound) {
	for _, r := range j.Rounds {
		if r.Round == name {
			found = r
		}
	}
	return found
}

func measureJobs(ctx context.Context, b *bench, r *results) error {
	jobs := 64
	if b.quick {
		jobs = 4
	}
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := follow(ctx, "bench/image-cache", "--jobs", strconv.Itoa(jobs), "--out", dir); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "image-cache.json"))
	if err != nil {
		return err
	}
	r.Jobs = &jobsResult{}
	return json.Unmarshal(text, r.Jobs)
}

// measureControl writes its own report, beside this one.
func measureControl(ctx context.Context, b *bench, _ *results) error {
	return follow(ctx, "bench/scale", "--rounds", strconv.Itoa(b.rounds(5)), "--out", b.out)
}

// follow runs a program that reports its progress.
func follow(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
}
