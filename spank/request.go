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

// A submission is everything that is known of a job when the user submits it.
type submission struct {
	config  string   // path of slurmv.toml
	options []string // VM options, as "name=value"
	dir     string   // working directory of the command, without symbolic links
	shell   string   // the same as the user's shell names it, perhaps by symbolic links
	args    []string // of sbatch or salloc, its own name first
	env     func(string) string
	stdin   string // path of the command's standard input
}

// An answer is what the plugin adds to an accepted job; what is empty is not added.
type answer struct {
	spec      string // for the nodes: jobspec.Spec.Encode
	resources string // for job_submit.lua: jobspec.Resources.Flat
	fabric    string // for the controllers: fabric.Wish
}

// errHeterogeneous refuses a heterogeneous job. The shim refuses it too, because it can see
// components that this process's command line does not show.
var errHeterogeneous = errors.New("--vm-per-node: a heterogeneous job cannot have VMs. " +
	`Submit one job, without hetjob and " : "`)

// answer checks the VM options. At a site where users ask for the VMs' CPUs and memory
// themselves, it also checks that they did. The error is a sentence for the user; lines for
// their batch script may follow it.
func (s submission) answer() (answer, error) {
	site, err := config.Load(s.config)
	if err != nil {
		return answer{}, fmt.Errorf("slurmv: %w", err)
	}
	if jobspec.WithoutVMs(s.values()) {
		return s.withoutVMs(site)
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
	spec.AliasWorkDir(s.alias(slurms))
	need := spec.Resources(site)
	if site.Slurm.Resources == config.ResourcesUser && known {
		if err := jobspec.Granted(need, slurms); err != nil {
			return answer{}, err
		}
	}
	wish, err := spec.Wish(site)
	spec.Nonce = rand.Text()
	return answer{spec: spec.Encode(), resources: need.Flat(), fabric: wish.String()}, err
}

// withoutVMs answers for a job that only wants tags on the fabric. To everything else it is
// a job like any other, so it may be heterogeneous and ask for any resources.
func (s submission) withoutVMs(site config.Config) (answer, error) {
	wish, err := jobspec.ParseWithoutVMs(s.values(), site)
	need := jobspec.Resources{Licenses: jobspec.LicensesOf(wish, site)}
	return answer{resources: need.Flat(), fabric: wish.String()}, err
}

// alias returns another path of the job's working directory. Programs may be named by the
// shell's path, and Slurm leaves symbolic links in an absolute --chdir, which getcwd resolves.
func (s submission) alias(slurms slurm.Submission) string {
	dir, shell := slurms.WorkDir(s.dir), slurms.WorkDir(s.shell)
	if shell != dir {
		return shell
	}
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return dir // only the nodes have the directory
	}
	return resolved
}

func (s submission) values() map[string]string {
	values := map[string]string{}
	for _, option := range s.options {
		name, value, _ := strings.Cut(option, "=")
		values[name] = value
	}
	return values
}

// script returns the text of the batch script, "" if there is none. Slurm has read the
// script already, but does not give it to plugins. known is false if the text cannot be
// read again: a pipe is empty, and a command under another name may be either one. In
// these cases only the nodes compare the VMs with the resources that Slurm gave.
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

// maxScript bounds how much of a script is read, in bytes. It is Slurm's own default limit.
const maxScript = 4 << 20

// readScript reads a file as Slurm did a moment ago. If it cannot read the file, it does
// not report an error: sbatch may have found the script elsewhere, by PATH.
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
