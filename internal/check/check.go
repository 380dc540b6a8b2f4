// Package check examines a node before its first VM job. For each thing that Slurm-V
// needs there, it says whether it is right, what was seen, and what to do.
//
// A node ([Preflight]) is examined through its files, below a root directory, and through the
// answers of a few programs; nothing is changed. Some things cannot be seen and must be tried:
// libvirt, KVM, the kernel's networks. The agent tries them and reports a [Probe]. The
// judgement is pure.
package check

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vfpool/sriov"
)

// A Status says how a check ended.
type Status string

// The values of Status.
const (
	OK      Status = "ok"
	Warning Status = "warning" // works, but not as well or as safely as it could
	Error   Status = "error"   // VM jobs will fail here
	Skipped Status = "skipped" // not examined; Seen says why
)

// A Result is the outcome of one check.
type Result struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Seen   string `json:"seen"`             // what was found
	Advice string `json:"advice,omitempty"` // what to do; "" if nothing
}

func ok(name, seen string) Result              { return Result{name, OK, seen, ""} }
func warning(name, seen, advice string) Result { return Result{name, Warning, seen, advice} }
func wrong(name, seen, advice string) Result   { return Result{name, Error, seen, advice} }
func skipped(name, why, advice string) Result  { return Result{name, Skipped, why, advice} }

// Failed reports whether a result is an error.
func Failed(results []Result) bool {
	for _, r := range results {
		if r.Status == Error {
			return true
		}
	}
	return false
}

// A Preflight is what to examine, and how.
type Preflight struct {
	Root   string // all paths are below it; "/" on a real node
	Name   string // in Slurm
	Config string // path of the configuration
	Agent  string // path of slurmv-agent
	AsRoot bool   // whether the caller is root: some things only root may try

	// Run returns the standard output of a program. Its error contains the program's
	// message.
	Run func(ctx context.Context, program string, args ...string) (string, error)
}

// An inspection is one examination. It looks up only once what several checks need.
type inspection struct {
	Preflight
	cfg         config.Config
	cfgErr      error
	settings    slurm.Conf
	settingsErr error
	probe       Probe
	probeErr    error
	slurmd      slurmd
	slurmdErr   error
	pfs         []device.PF
	findings    []sriov.Finding // about the PFs
}

// checks are in the order of the report.
var checks = []func(context.Context, *inspection) []Result{
	configuration, directories, programs,
	account, libvirt, qemu, uefi, driver, kvm, networks, vxlanPorts, cloud,
	limits, hugepages, sharedMemory, vfs,
	plugin, restarted, slurmSettings, resourceScript, fabricTags,
}

// Check examines the node.
func (p Preflight) Check(ctx context.Context) []Result {
	i := &inspection{Preflight: p}
	i.cfg, i.cfgErr = config.Load(i.configPath())
	i.settings, i.settingsErr = readSettings(ctx, p)
	i.probe, i.probeErr = readProbe(ctx, p)
	i.slurmd, i.slurmdErr = findSlurmd(p.Root, p.Name)
	i.pfs, i.findings = findPFs(p.Root)
	var results []Result
	for _, check := range checks {
		for _, r := range check(ctx, i) {
			r.Seen = strings.Join(strings.Fields(r.Seen), " ") // programs may print several lines
			results = append(results, r)
		}
	}
	return results
}

// path returns the path of a file below the root.
func (p Preflight) path(name string) string { return filepath.Join(p.Root, name) }

// configPath is "" for the installation's own file, which may be missing.
func (p Preflight) configPath() string {
	if p.Config == config.Path && p.Root == "/" {
		return ""
	}
	return p.path(p.Config)
}

func configuration(_ context.Context, i *inspection) []Result {
	const name = "configuration"
	if i.cfgErr != nil {
		return []Result{wrong(name, i.cfgErr.Error(), "correct the file; every key is explained in the one that was installed")}
	}
	if _, err := os.Stat(i.path(i.Config)); err != nil {
		return []Result{ok(name, i.Config+" is not there: everything has its default")}
	}
	return []Result{ok(name, i.Config)}
}

// firstLine returns the first line of a program's answer.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
