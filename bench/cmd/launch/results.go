package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// results are all measurements, each part's latest.
type results struct {
	Parts   map[string]taken `json:"parts"`
	Launch  *launchResult    `json:"launch,omitempty"`
	Figures []figure         `json:"figures,omitempty"`
	Designs []designPoint    `json:"designs,omitempty"`
	Scale   []scalePoint     `json:"scale,omitempty"`
	Jobs    *jobsResult      `json:"jobs,omitempty"`
	Clones  *clonesResult    `json:"clones,omitempty"`
	Waiting *waitingResult   `json:"waiting,omitempty"`
}

// taken says when and how a part was measured.
type taken struct {
	At    time.Time `json:"at"`
	Quick bool      `json:"quick,omitempty"`
	CPUs  int       `json:"cpus"`
	Load  string    `json:"load"` // 15-minute load average of the machine at the end
}

func readResults(out string) (*results, error) {
	r := &results{Parts: map[string]taken{}}
	text, err := os.ReadFile(filepath.Join(out, "benchmarks.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, r)
	}
	return r, err
}

func (r *results) note(part string, quick bool) {
	load, _ := os.ReadFile("/proc/loadavg")
	fields := append(strings.Fields(string(load)), "", "", "")
	r.Parts[part] = taken{At: time.Now().UTC().Truncate(time.Second), Quick: quick, CPUs: cpus, Load: fields[2]}
}

func (r *results) write(out string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "benchmarks.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	if err := r.draw(out); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "benchmarks.md"), []byte(r.report()), 0o644)
}

// rewrite writes report and figures again, from the results of an earlier run.
func rewrite(out string) error {
	r, err := readResults(out)
	if err == nil && len(r.Parts) == 0 {
		err = fmt.Errorf("there are no results in %s", filepath.Join(out, "benchmarks.json"))
	}
	if err != nil {
		return err
	}
	return r.write(out)
}
