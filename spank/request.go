package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/slurm"
)

// A submission is what is known of a job when its user submits it.
type submission struct {
	config  string   // path of slurmv.toml
	options []string // VM options, as "name=value"
	dir     string   // where the command runs
	args    []string // of sbatch or salloc, its own name first
	env     func(string) string
	stdin   string // path of the command's standard input
}

// An answer is what an accepted job carries.
type answer struct {
	spec      string // for the nodes: jobspec.Spec.Encode
	resources string // for job_submit.lua: jobspec.Resources.Flat
}

// errHeterogeneous is also the shim's refusal, for components that cannot be seen here.
var errHeterogeneous = errors.New("--vm-per-node: a heterogeneous job cannot have VMs. " +
	`Submit one job, without hetjob and " : "`)

// answer checks the VM options and, where nobody else adds the VMs' CPUs and
// memory to the request, that the user has asked for them. The error is a sentence
// for the user, which lines for his batch script may follow.
func (s submission) answer() (answer, error) {
	site, err := config.Load(s.config)
	if err != nil {
		return answer{}, fmt.Errorf("slurmv: %w", err)
	}
	line := slurm.ReadCommandLine(s.args, jobspec.OptionNames()...)
	script, known := s.script(line)
	slurms := line.Submission(script, s.env)
	if slurms.Heterogeneous {
		return answer{}, errHeterogeneous
	}
	spec, err := jobspec.ParseIn(slurms.WorkDir(s.dir), s.values(), s.env, site)
	if err != nil {
		return answer{}, err
	}
	need := spec.Resources(site)
	if site.Slurm.Resources == config.ResourcesUser && known {
		if err := jobspec.Granted(need, slurms); err != nil {
			return answer{}, err
		}
	}
	spec.Nonce = rand.Text()
	return answer{spec: spec.Encode(), resources: need.Flat()}, nil
}

func (s submission) values() map[string]string {
	values := map[string]string{}
	for _, option := range s.options {
		name, value, _ := strings.Cut(option, "=")
		values[name] = value
	}
	return values
}

// script returns the text of the batch script, which Slurm has read already but
// does not give to plugins; it is empty where there is none. What came through a
// pipe is gone, and scrontab has no script but lines of its own: then known is
// false, and the nodes alone compare the VMs with what Slurm gave.
func (s submission) script(line slurm.CommandLine) (text string, known bool) {
	path, given := line.Script()
	switch {
	case line.Command == "salloc" || line.Has("wrap"):
		return "", true
	case line.Command != "sbatch":
		return "", false
	case given:
		return readScript(s.absolute(path))
	}
	return readScript(s.stdin)
}

func (s submission) absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(s.dir, path)
}

// maxScript bounds what is read, in bytes: as much as Slurm takes by default.
const maxScript = 4 << 20

// readScript reads a file as Slurm did a moment ago; sbatch may have found it
// elsewhere, by PATH, so one that cannot be read is unknown rather than wrong.
func readScript(path string) (text string, known bool) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxScript {
		return "", false
	}
	data, err := os.ReadFile(path)
	return string(data), err == nil
}

// commandLine reads the arguments of a process from its file under /proc.
func commandLine(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("slurmv: read the command line: %w", err)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00"), nil
}
