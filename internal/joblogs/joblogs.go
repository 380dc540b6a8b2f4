// Package joblogs finds the files that the nodes of a job have left beside the job's
// output: the logs of its agents, the consoles of its VMs and the record of the launch.
package joblogs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/slurm"
)

// Saved are the directories in which the logs of a job may lie, at least one.
type Saved struct{ Dirs []string }

// Find looks in the job's working directory, and then in the current one, because Slurm
// may have forgotten the job.
func Find(ctx context.Context, job string) (Saved, error) {
	id, workDir, err := slurm.User(os.Environ()).WhereWas(ctx, job)
	if err != nil {
		return Saved{}, err
	}
	here, err := os.Getwd()
	if err != nil {
		return Saved{}, err
	}
	if workDir == "" {
		workDir = here
	}
	for _, parent := range []string{workDir, here} {
		dirs, err := savedIn(parent, id)
		if err != nil || len(dirs) > 0 {
			return Saved{dirs}, err
		}
	}
	return Saved{[]string{filepath.Join(workDir, "slurmv-"+id)}}, nil
}

// savedIn returns the directories of a job below parent. A requeued job has one for each
// run.
func savedIn(parent, id string) ([]string, error) {
	entries, err := os.ReadDir(parent)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	name := regexp.MustCompile(`^slurmv-` + regexp.QuoteMeta(id) + `(\.[0-9]+)?$`)
	var dirs []string
	for _, e := range entries {
		if name.MatchString(e.Name()) {
			dirs = append(dirs, filepath.Join(parent, e.Name()))
		}
	}
	return dirs, err
}

// Nothing returns the error for a job without logs, which says where they would be.
func (s Saved) Nothing(job string) error {
	return fmt.Errorf("job %s has no such logs: no VM of it runs that is asked for, and none are in %s", job, s.Dirs[0])
}

// A File is one file of a node.
type File struct{ Path, Node, Name string }

// Files returns the files, ordered by run, node and name. It omits unreadable
// directories.
func (s Saved) Files() []File {
	var files []File
	for _, dir := range s.Dirs {
		nodes, _ := os.ReadDir(dir)
		for _, node := range nodes {
			names, _ := os.ReadDir(filepath.Join(dir, node.Name()))
			for _, e := range names {
				files = append(files, File{filepath.Join(dir, node.Name(), e.Name()), node.Name(), e.Name()})
			}
		}
	}
	return files
}

// Print shows the file, with a title.
func (f File) Print(out io.Writer) error {
	file, err := os.Open(f.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	PrintTitle(out, f.Node, f.Name)
	_, err = io.Copy(out, file)
	fmt.Fprintln(out)
	return err
}

// PrintTitle prints the title of a file.
func PrintTitle(out io.Writer, node, name string) { fmt.Fprintf(out, "==> %s: %s <==\n", node, name) }

// stagesFile is the agent's record of the launch, beside the logs of a node: a
// nodeagent.NodeVMs.
const stagesFile = "stages.json"

// Stages reads the records that the nodes have left of the job's newest run.
func (s Saved) Stages() (newest []nodeagent.NodeVMs, err error) {
	var began time.Time
	for _, dir := range s.Dirs {
		nodes, err := Saved{[]string{dir}}.stagesOfRun()
		if err != nil {
			return nil, err
		}
		if len(nodes) > 0 && (newest == nil || nodes[0].Began.After(began)) {
			newest, began = nodes, nodes[0].Began
		}
	}
	return newest, nil
}

func (s Saved) stagesOfRun() ([]nodeagent.NodeVMs, error) {
	var nodes []nodeagent.NodeVMs
	for _, file := range s.Files() {
		if file.Name != stagesFile {
			continue
		}
		text, err := os.ReadFile(file.Path)
		if err != nil {
			return nil, err
		}
		var n nodeagent.NodeVMs
		if err := json.Unmarshal(text, &n); err != nil {
			return nil, fmt.Errorf("%s is not a record of stages: %w", file.Path, err)
		}
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b nodeagent.NodeVMs) int { return a.Rank - b.Rank })
	return nodes, nil
}
