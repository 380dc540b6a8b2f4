package check

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/slurm"
)

func readSettings(ctx context.Context, p Preflight) (slurm.Conf, error) {
	text, err := p.Run(ctx, "scontrol", "show", "config")
	if err != nil {
		return nil, err
	}
	return slurm.ParseConf(text), nil
}

const (
	// reclaimSeconds is the time that the plugin gives the reclaimer at the end of a VM
	// step. Slurm counts it as part of the end of a task, after KillWait.
	reclaimSeconds = 25

	// leastKillWait leaves programs in the VMs some time after SIGTERM.
	leastKillWait = 10
)

func slurmSettings(_ context.Context, i *inspection) []Result {
	if i.settingsErr != nil {
		return []Result{wrong("slurm", i.settingsErr.Error(), "start slurmctld, and check that this host has its slurm.conf")}
	}
	s := i.settings
	return []Result{
		reached(i), tracking(s), tasks(s), memoryLimit(s), pmi(i, s), timers(s), epilogs(s), contained(s),
	}
}

// reached judges the agent's own way to slurmctld: its commands are those of the
// configuration, and it does not have the caller's PATH.
func reached(i *inspection) Result {
	if i.probe.SlurmError != "" {
		return wrong("slurm", "the agent does not reach slurmctld: "+i.probe.SlurmError,
			"set bin in [slurm] of the configuration to the directory of Slurm's commands, and let them find slurm.conf: jobs of several nodes, counted virtual functions and requeuing need them")
	}
	return ok("slurm", "slurmctld answers, Slurm "+i.settings["SLURM_VERSION"])
}

// tracking checks that Slurm tracks processes by cgroups: the agent admits only processes
// in the job's own cgroup.
func tracking(s slurm.Conf) Result {
	if s["ProctrackType"] != "proctrack/cgroup" {
		return wrong("ProctrackType", s["ProctrackType"], "set ProctrackType=proctrack/cgroup: by the cgroup a node knows the processes of a job")
	}
	return ok("ProctrackType", s["ProctrackType"])
}

func tasks(s slurm.Conf) Result {
	if !s.Has("TaskPlugin", "task/cgroup") {
		return warning("TaskPlugin", s["TaskPlugin"], "add task/cgroup, and ConstrainRAMSpace=yes to cgroup.conf: nothing else keeps VMs within the job's CPUs and memory")
	}
	return ok("TaskPlugin", s["TaskPlugin"])
}

// memoryLimit checks that Slurm's cgroups bound the memory of jobs. scontrol lists the
// settings of cgroup.conf behind its own.
func memoryLimit(s slurm.Conf) Result {
	const name = "ConstrainRAMSpace"
	switch value, known := s[name]; {
	case !known:
		return skipped(name, "not among Slurm's settings", "")
	case !strings.EqualFold(value, "yes"):
		return warning(name, value, "set ConstrainRAMSpace=yes in cgroup.conf: without it VMs may use more memory than their job has")
	default:
		return ok(name, value)
	}
}

// pmi checks that Slurm can start MPI programs by PMI-2, as slurm-v-run does by default.
func pmi(i *inspection, s slurm.Conf) Result {
	const name, plugin = "PMI", "mpi_pmi2.so"
	dirs := strings.Split(s["PluginDir"], ":")
	if s["PluginDir"] == "" {
		return skipped(name, "PluginDir is not among Slurm's settings", "")
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(i.path(dir), plugin)); err == nil {
			return ok(name, filepath.Join(dir, plugin))
		}
	}
	return warning(name, "there is no "+plugin+" in "+s["PluginDir"],
		"install Slurm's plugin for PMI-2 (Debian: slurm-wlm-basic-plugins; RHEL: slurm): without it only slurm-v-run --launcher=ssh and --mpi=none start programs")
}

func timers(s slurm.Conf) Result {
	const name = "UnkillableStepTimeout, KillWait"
	unkillable, ok1 := s.Seconds("UnkillableStepTimeout")
	wait, ok2 := s.Seconds("KillWait")
	seen := fmt.Sprintf("%d s, %d s", unkillable, wait)
	switch {
	case !ok1 || !ok2:
		return skipped(name, "not among Slurm's settings", "")
	case unkillable <= reclaimSeconds:
		return wrong(name, seen, fmt.Sprintf("set UnkillableStepTimeout above %d: giving back VMs may take as long, and Slurm drains a node that takes longer", reclaimSeconds))
	case wait < leastKillWait:
		return warning(name, seen, fmt.Sprintf("set KillWait to %d or more: programs in the VMs have it to end after SIGTERM", leastKillWait))
	}
	return ok(name, seen)
}

// epilogs checks for RunInJob, with which slurmd does not run the plugin's epilog.
func epilogs(s slurm.Conf) Result {
	const name = "PrologFlags"
	flags := strings.Join(s.List(name), ",")
	if !slices.ContainsFunc(s.List(name), func(f string) bool { return strings.EqualFold(f, "RunInJob") }) {
		return ok(name, orNone(flags))
	}
	if scripts := strings.Join(scriptsOf(s, "Epilog"), ", "); strings.Contains(scripts, "slurmv") {
		return ok(name, flags+"; Epilog="+scripts)
	}
	return wrong(name, flags, "with RunInJob Slurm runs no plugin's epilog: set Epilog= to a script as in docs/admin.md, or remove RunInJob")
}

func contained(s slurm.Conf) Result {
	const name = "SlurmdParameters"
	if s.Has(name, "contain_spank") {
		return warning(name, s[name], "remove contain_spank: it runs the end of a VM step in a clone of slurmstepd, which may not start programs")
	}
	return ok(name, orNone(s[name]))
}

// resourceScript checks that Slurm runs the Lua script that adds the VMs' CPUs and memory
// to requests, if the site has chosen that.
func resourceScript(_ context.Context, i *inspection) []Result {
	const name = "resources"
	if i.cfgErr != nil || i.settingsErr != nil {
		return []Result{skipped(name, "the configuration or Slurm's settings are not known", "")}
	}
	if r, contradicts := i.unheardScript(); contradicts {
		return []Result{r}
	}
	return []Result{judgeResources(i.cfg.Slurm.Resources, i.settings)}
}

// unheardScript warns where slurmctld's script asks for the VMs' CPUs and memory and the
// plugin does not know: it then refuses jobs that do not ask themselves. Only slurmctld's
// host has the script.
func (i *inspection) unheardScript() (r Result, contradicts bool) {
	if i.cfg.Slurm.Resources != config.ResourcesUser || !runsLua(i.settings, "JobSubmitPlugins", config.ResourcesJobSubmit) {
		return Result{}, false
	}
	file := filepath.Join(i.slurmDir(), "job_submit.lua")
	text, err := os.ReadFile(i.path(file))
	if err != nil || !strings.Contains(string(text), "slurmv_job_submit") {
		return Result{}, false
	}
	return warning("resources", fmt.Sprintf("resources = %q in the configuration, but %s loads Slurm-V's script", config.ResourcesUser, file),
		"set resources = \"job_submit\" in [slurm] of slurmv.toml: until then jobs are refused that leave their request to the script"), true
}

// slurmDir is the directory of slurm.conf, where Slurm also looks for its scripts.
func (i *inspection) slurmDir() string {
	if conf := i.settings["SLURM_CONF"]; conf != "" {
		return filepath.Dir(conf)
	}
	return "/etc/slurm"
}

// runsLua reports whether the plugins of a kind are Lua: Slurm takes lua for job_submit/lua.
func runsLua(s slurm.Conf, plugins string, kind config.Resources) bool {
	return s.Has(plugins, "lua") || s.Has(plugins, string(kind)+"/lua")
}

func judgeResources(who config.Resources, s slurm.Conf) Result {
	const name = "resources"
	plugin := map[config.Resources]string{config.ResourcesJobSubmit: "JobSubmitPlugins", config.ResourcesCLIFilter: "CliFilterPlugins"}[who]
	switch {
	case plugin == "":
		return ok(name, "users add the VMs' CPUs and memory to their requests")
	case !runsLua(s, plugin, who):
		return wrong(name, fmt.Sprintf("resources = %q in the configuration, but %s=%s", string(who), plugin, s[plugin]),
			fmt.Sprintf("set %s=lua and install the script that came with Slurm-V, or set resources = \"user\"", plugin))
	}
	return ok(name, fmt.Sprintf("resources = %q, %s=%s", string(who), plugin, s[plugin]))
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
