package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/cxi"
	"github.com/slurm-v/slurm-v/fabric/letter"
	"github.com/slurm-v/slurm-v/fabric/opensm"
	"github.com/slurm-v/slurm-v/slurm"
)

// fabricTags checks what jobs' own tags on the fabric need on this host, node or controller.
// Where the site has no pool of tags, there is nothing to check.
func fabricTags(ctx context.Context, i *inspection) []Result {
	if i.cfgErr != nil || len(i.cfg.Fabric.Pools()) == 0 {
		return nil
	}
	results := append([]Result{i.fabricKey(), i.fabricScripts(), i.switchVNIs(), i.fabricManager()}, i.licences()...)
	if i.cfg.Fabric.HasPool(config.TagVNI) {
		results = append(results, i.slingshot(ctx)...)
	}
	if i.cfg.Fabric.HasPool(config.TagPKey) {
		results = append(results, i.subnetManager())
	}
	return results
}

// fabricKey checks the file that controllers and nodes have in common.
func (i *inspection) fabricKey() Result {
	const name = "fabric key"
	path := i.cfg.Fabric.Key
	if !i.AsRoot {
		return skipped(name, "only root and SlurmUser can read it", "run as root")
	}
	if _, err := letter.Load(i.path(path)); err != nil {
		return wrong(name, strings.ReplaceAll(err.Error(), i.path(path), path), "copy the key of a controller to "+path+", of root, with the mode 0640 and on controllers with the group of SlurmUser; slurmv fabric key makes the first one")
	}
	return ok(name, path)
}

// fabricScripts checks that slurmctld calls us when a job begins and ends.
func (i *inspection) fabricScripts() Result {
	const name = "PrologSlurmctld, EpilogSlurmctld"
	if i.settingsErr != nil {
		return skipped(name, "Slurm's settings are not known", "")
	}
	var seen []string
	for _, hook := range []string{"PrologSlurmctld", "EpilogSlurmctld"} {
		scripts := scriptsOf(i.settings, hook)
		if len(scripts) == 0 {
			return wrong(name, hook+" is not set", "set "+hook+" in slurm.conf to "+filepath.Join(config.Libexec, hookFile(hook))+": nobody gives jobs their tags")
		}
		if calls := i.callsUs(scripts); calls == "" {
			return wrong(name, hook+"="+strings.Join(scripts, ", ")+" does not call Slurm-V", "call "+filepath.Join(config.Libexec, hookFile(hook))+" there, and pass on its exit status")
		} else if calls == unseen {
			return warning(name, hook+"="+strings.Join(scripts, ", ")+" cannot be read here", "look on the controller whether it calls "+hookFile(hook))
		}
		seen = append(seen, strings.Join(scripts, ", "))
	}
	return ok(name, strings.Join(seen, ", "))
}

// hookFile is the name of our own script.
func hookFile(hook string) string {
	return strings.ToLower(strings.TrimSuffix(hook, "Slurmctld")) + "-slurmctld"
}

// scriptsOf returns the scripts of a setting. From Slurm 24.11 on there may be several:
// PrologSlurmctld[0] and so on.
func scriptsOf(s slurm.Conf, hook string) (scripts []string) {
	for name, value := range s {
		if (name == hook || strings.HasPrefix(name, hook+"[")) && value != "" {
			scripts = append(scripts, value)
		}
	}
	slices.Sort(scripts)
	return scripts
}

const unseen = "unseen"

// callsUs returns the script that is ours or names one of our programs; "" if none does,
// and unseen if one cannot be read.
func (i *inspection) callsUs(scripts []string) (which string) {
	for _, script := range scripts {
		if names(script) {
			return script
		}
		text, err := os.ReadFile(i.path(script))
		switch {
		case err != nil:
			which = unseen
		case names(string(text)):
			return script
		}
	}
	return which
}

func names(text string) bool {
	return slices.ContainsFunc([]string{"slurmv fabric", "slurmv-fabric", "prolog-slurmctld", "epilog-slurmctld"}, func(ours string) bool { return strings.Contains(text, ours) })
}

// switchVNIs checks that Slurm's own plugin for Slingshot gives none of our VNIs to steps.
func (i *inspection) switchVNIs() Result {
	const name = "VNIs"
	if i.settingsErr != nil {
		return skipped(name, "Slurm's settings are not known", "")
	}
	own, used := i.settings.SwitchVNIs()
	if !used {
		return ok(name, "Slurm gives steps none: SwitchType="+orNone(i.settings["SwitchType"]))
	}
	if err := fabric.ApartFromSwitch(fabric.Pools(i.cfg.Fabric), i.settings); err != nil {
		return wrong(name, err.Error(), fabric.SwitchAdvice)
	}
	return ok(name, fmt.Sprintf("switch/hpe_slingshot has %d-%d, apart from the pools", own.First, own.Last))
}

// fabricManager checks that Slurm's own plugin for Slingshot has no sessions at the fabric manager.
// Ours have the same names, and the controller releases those of jobs that it does not know.
func (i *inspection) fabricManager() Result {
	const name = "fabric manager"
	url := i.cfg.Fabric.Collectives.URL
	switch {
	case url == "":
		return ok(name, "no job has hardware collectives")
	case i.settingsErr != nil:
		return skipped(name, "Slurm's settings are not known", "")
	case slurmCollectives(i.settings):
		return wrong(name, "switch/hpe_slingshot makes sessions for jobs, and [fabric.collectives] releases them: they have the names of its own",
			"take fm_url= out of SwitchParameters of slurm.conf, or url out of [fabric.collectives] of slurmv.toml")
	}
	return ok(name, url)
}

// slurmCollectives reports whether switch/hpe_slingshot reserves multicast addresses for jobs.
func slurmCollectives(s slurm.Conf) bool {
	url := func(word string) bool { return strings.HasPrefix(word, "fm_url=") }
	return s.HasSlingshotSwitch() && slices.ContainsFunc(s.List("SwitchParameters"), url)
}

// slingshot checks the library of the cards, and that their default service is off: with it
// programs reach the cards without a VNI of their own.
func (i *inspection) slingshot(ctx context.Context) []Result {
	const name, service = "libcxi", "default CXI service"
	cards, _ := filepath.Glob(i.path("sys/class/cxi/cxi*"))
	if len(cards) == 0 {
		return []Result{ok(name, "this host has no Slingshot card")}
	}
	text, err := i.Run(ctx, "slurmv", "fabric", "list", "--config", i.Config, "--output", "json")
	if err != nil {
		return []Result{wrong(name, err.Error(), "install libcxi of the Slingshot Host Software, or set libcxi in [fabric.vni] of slurmv.toml")}
	}
	var rows []cxi.Row
	if err := json.Unmarshal([]byte(text), &rows); err != nil {
		return []Result{wrong(name, "slurmv fabric list: "+err.Error(), "install the same Slurm-V everywhere")}
	}
	return []Result{ok(name, i.cfg.Fabric.VNI.LibCXI), judgeDefault(service, rows)}
}

func judgeDefault(name string, rows []cxi.Row) Result {
	var open []string
	for _, r := range rows {
		if r.ID == cxi.DefaultService && r.Enabled {
			open = append(open, r.Cards...)
		}
	}
	if len(open) > 0 {
		return warning(name, "enabled on "+strings.Join(open, ", "), fmt.Sprintf("cxi_service disable -d %s -s %d: jobs without VNIs of their own hear each other by it", open[0], cxi.DefaultService))
	}
	return ok(name, "disabled")
}

// subnetManager checks OpenSM's file where OpenSM runs, and the way to it on a controller.
func (i *inspection) subnetManager() Result {
	const name = "P_Keys"
	site := i.cfg.Fabric.PKey
	switch {
	case site.UFM != "":
		return ok(name, "UFM at "+site.UFM)
	case len(site.OpenSMCommand) == 0 && site.PartitionsFile == "":
		return warning(name, "no subnet manager is named", "set partitions_file, opensm_command or ufm in [fabric.pkey]: else an administrator has to make the VFs members")
	case i.runs("opensm"):
		return i.partitionsFile(name, "OpenSM runs here")
	case i.runs("slurmctld") && len(site.OpenSMCommand) == 0:
		return i.partitionsFile(name, "slurmctld runs here, and opensm_command is empty")
	}
	return ok(name, "this host has nothing to tell OpenSM, or a command does: "+orNone(strings.Join(site.OpenSMCommand, " ")))
}

func (i *inspection) partitionsFile(name, why string) Result {
	file := i.cfg.Fabric.PKey.PartitionsFile
	if file == "" {
		return wrong(name, why+", and partitions_file is empty", "set partitions_file in [fabric.pkey] on OpenSM's host")
	}
	text, err := os.ReadFile(i.path(file))
	if err != nil {
		return wrong(name, fmt.Sprintf("%s, and %s cannot be read: %v", why, file, errors.Unwrap(err)), "make the file, with OpenSM's default partition; or set opensm_command to tell OpenSM on its own host")
	}
	if notes := opensm.Notes(string(text)); len(notes) > 0 {
		return warning(name, file+", "+strings.Join(notes, "; "), "name the hosts there in place of ALL, or make them limited members")
	}
	return ok(name, file)
}

// runs reports whether a program of this name runs here.
func (i *inspection) runs(program string) bool {
	files, _ := filepath.Glob(i.path("proc/[0-9]*/comm"))
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.TrimSpace(string(text)) == program
	})
}
