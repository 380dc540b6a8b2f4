package check

import (
	"bufio"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/slurm"
)

const pluginName = "slurmv.so"

// plugin checks that the plugin is in the stack and was built for this release of Slurm.
func plugin(ctx context.Context, i *inspection) []Result {
	line, err := findPlugin(i.Root, i.plugstack())
	if err != nil {
		return []Result{wrong("plugstack", err.Error(), "add to "+i.plugstack()+": required "+filepath.Join(config.Libdir, pluginName))}
	}
	results := []Result{judgeLine(line)}
	if path.IsAbs(line.path) {
		results = append(results, pluginVersion(ctx, i, line.path))
	}
	return results
}

// plugstack returns the file that slurmd reads here: the one that PlugStackConfig names, and no other, or the one beside its
// slurm.conf. slurmctld only knows its own slurm.conf. A slurmd that gets its files from slurmctld (configless) keeps them
// in a cache.
func (i *inspection) plugstack() string {
	if p := i.settings["PlugStackConfig"]; p != "" {
		return p
	}
	for _, dir := range i.confDirs() {
		file := path.Join(dir, "plugstack.conf")
		if _, err := os.Stat(i.path(file)); err == nil {
			return file
		}
	}
	return path.Join(i.slurmDir(), "plugstack.conf")
}

// confDirs are where this node may have Slurm's files.
func (i *inspection) confDirs() (dirs []string) {
	if conf := i.slurmd.variable("SLURM_CONF"); conf != "" {
		dirs = append(dirs, path.Dir(conf))
	}
	dirs = append(dirs, i.slurmDir(), "/run/slurm/conf")
	if spool := i.settings["SlurmdSpoolDir"]; spool != "" {
		dirs = append(dirs, path.Join(i.slurmPath(spool), "conf-cache"))
	}
	return dirs
}

// slurmPath replaces what Slurm replaces in a path of slurmd's: %n is the node's name in Slurm, %h the host's.
func (i *inspection) slurmPath(pattern string) string {
	host, _ := slurm.HostName()
	return strings.NewReplacer("%n", i.Name, "%h", host).Replace(pattern)
}

// A stackLine is the line of plugstack.conf that loads the plugin.
type stackLine struct {
	file     string
	required bool
	path     string
	args     []string
}

// argument matches what the plugin takes: set_path in spank/shim.c.
var argument = regexp.MustCompile(`^(config|agent|state)=/`)

// wrongArgument returns one for which the plugin refuses every VM job; "" if there is none.
func (l stackLine) wrongArgument() string {
	for _, a := range l.args {
		if !argument.MatchString(a) {
			return a
		}
	}
	return ""
}

func judgeLine(l stackLine) Result {
	const name = "plugstack"
	word := map[bool]string{true: "required", false: "optional"}[l.required]
	seen := fmt.Sprintf("%s %s in %s", word, l.path, l.file)
	switch {
	case !l.required:
		return wrong(name, seen, "write required: a failure of an optional plugin is ignored, and the program would run on the bare node")
	case !path.IsAbs(l.path):
		return wrong(name, seen, "write the absolute path: Slurm would look for the plugin in its own directory")
	case l.wrongArgument() != "":
		return wrong(name, seen+" with the argument "+l.wrongArgument(), "leave only config=, agent= and state= with absolute paths behind the plugin: it refuses all VM jobs")
	}
	return ok(name, seen)
}

// findPlugin looks in a plugstack.conf and the files that it includes.
func findPlugin(root, file string) (stackLine, error) {
	var found *stackLine
	err := readStack(root, file, 0, func(l stackLine) {
		if found == nil && path.Base(l.path) == pluginName {
			found = &l
		}
	})
	if found != nil {
		return *found, nil
	}
	if err != nil {
		return stackLine{}, err
	}
	return stackLine{}, fmt.Errorf("%s has no line for %s", file, pluginName)
}

// maxInclude bounds how deeply files may include each other.
const maxInclude = 8

func readStack(root, file string, depth int, take func(stackLine)) error {
	if depth > maxInclude {
		return fmt.Errorf("%s: files include each other too deeply", file)
	}
	f, err := os.Open(filepath.Join(root, file))
	if err != nil {
		return err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case "required", "optional":
			take(stackLine{file: file, required: words[0] == "required", path: words[1], args: words[2:]})
		case "include":
			err = errors.Join(err, readIncluded(root, file, words[1], depth, take))
		}
	}
	return err
}

// readIncluded reads the files of a pattern that is relative to the including file.
func readIncluded(root, file, pattern string, depth int, take func(stackLine)) error {
	if !path.IsAbs(pattern) {
		pattern = path.Join(path.Dir(file), pattern)
	}
	paths, err := filepath.Glob(filepath.Join(root, pattern))
	for _, p := range paths {
		below, relErr := filepath.Rel(root, p)
		if relErr == nil {
			err = errors.Join(err, readStack(root, "/"+below, depth+1, take))
		}
	}
	return err
}

// pluginVersion compares the plugin's release with this node's Slurm.
func pluginVersion(ctx context.Context, i *inspection, file string) Result {
	const name = "plugin"
	built, err := builtFor(i.path(file))
	if err != nil {
		return wrong(name, err.Error(), "build and install Slurm-V on this node again")
	}
	text, err := i.Run(ctx, "slurmd", "-V")
	if err != nil {
		text = i.settings["SLURM_VERSION"]
	}
	running, known := slurm.ParseVersion(text)
	switch {
	case !known:
		return skipped(name, fmt.Sprintf("%s is built for Slurm %s; this node's Slurm is not known", file, built), "")
	case built.Release() != running.Release():
		return wrong(name, fmt.Sprintf("%s is built for Slurm %s, but this is Slurm %s", file, built, running),
			"build it against this Slurm's headers (make SLURM_INCLUDE=…): Slurm refuses plugins of another release, and slurmd does not start")
	}
	return ok(name, fmt.Sprintf("%s is built for Slurm %s; this is %s", file, built, running))
}

// builtFor returns the release in the symbol plugin_version of a plugin.
func builtFor(file string) (slurm.Version, error) {
	f, err := elf.Open(file)
	if err != nil {
		return 0, fmt.Errorf("read plugin: %w", err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return 0, fmt.Errorf("read plugin %s: %w", file, err)
	}
	for _, s := range symbols {
		if s.Name == "plugin_version" {
			return readVersion(f, s)
		}
	}
	return 0, fmt.Errorf("%s has no plugin_version: it is no plugin of Slurm", file)
}

func readVersion(f *elf.File, s elf.Symbol) (slurm.Version, error) {
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD || s.Value < p.Vaddr || s.Value+4 > p.Vaddr+p.Filesz {
			continue
		}
		var word [4]byte
		if _, err := p.ReadAt(word[:], int64(s.Value-p.Vaddr)); err != nil {
			return 0, fmt.Errorf("read plugin_version: %w", err)
		}
		return slurm.Version(f.ByteOrder.Uint32(word[:])), nil
	}
	return 0, errors.New("plugin_version has no value in the file")
}

// restarted checks that slurmd was started after the plugin was installed: it loads
// plugins only when it starts.
func restarted(_ context.Context, i *inspection) []Result {
	const name = "slurmd"
	if i.slurmdErr != nil {
		return []Result{warning(name, i.slurmdErr.Error(), "start slurmd on this node")}
	}
	line, err := findPlugin(i.Root, i.plugstack())
	if err != nil {
		return nil // another check reports this
	}
	var file unix.Stat_t
	if err := unix.Stat(i.path(line.path), &file); err != nil {
		return nil
	}
	// Not the time of the last write: packages bring that of their build.
	return []Result{judgeRestart(i.slurmd.started, time.Unix(file.Ctim.Unix()))}
}

func judgeRestart(started, installed time.Time) Result {
	const name, layout = "slurmd", "2006-01-02 15:04:05"
	seen := fmt.Sprintf("started %s, plugin installed %s", started.Format(layout), installed.Format(layout))
	// The boot time, and with it started, may be up to a second too early.
	if started.Add(time.Second).Before(installed) {
		return wrong(name, seen, "restart slurmd: it loads plugins when it starts, and without ours it does not reclaim")
	}
	return ok(name, seen)
}
