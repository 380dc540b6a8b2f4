package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

type logsOptions struct {
	job  string
	node string
	vm   int // -1 for all
}

func newLogs() *cobra.Command {
	var o logsOptions
	c := &cobra.Command{
		Use:   "logs [flags] JOB",
		Short: "Show the logs and consoles of a job's VMs",
		Long: `Show what the node agents of a job have logged and what its VMs have printed
on their consoles.

While the VMs run, slurmv asks for their consoles. When a node gives a job's
resources back, it writes all logs to the directory slurmv-JOB/NODE beside the job's
output, and slurmv reads them there. If this directory cannot be written, the logs
stay on the node, in the directory logs of its state directory (/var/lib/slurmv/NODE
by default), which only root can read.

EXIT STATUS
===========

    0   the logs are shown
    1   there are none, or they cannot be read
    2   the command line cannot be run`,
		Example: `  slurmv logs 4217
  slurmv logs --node n2 --vm 3 4217`,
		Args: atMost(1),
		RunE: func(c *cobra.Command, args []string) error {
			t, err := targetOf(args, os.Getenv)
			if err != nil {
				return err
			}
			o.job = t.job
			return runLogs(c.Context(), o, c.OutOrStdout())
		},
	}
	c.Flags().StringVar(&o.node, "node", "", "show only the node with this `name`")
	c.Flags().IntVar(&o.vm, "vm", -1, "show only the console of the VM with this `number`")
	return c
}

func runLogs(ctx context.Context, o logsOptions, out io.Writer) error {
	saved, err := findSaved(ctx, o.job)
	if err != nil {
		return err
	}
	shown, err := o.printSaved(out, saved)
	if err != nil {
		return err
	}
	// VMs may run even so: those that ended before were started again.
	live, err := o.printRunning(ctx, out)
	if err == nil && shown+live == 0 {
		return saved.nothing(o.job)
	}
	return err
}

func (o logsOptions) printSaved(out io.Writer, saved savedLogs) (shown int, err error) {
	for _, file := range saved.files() {
		if !o.wants(file) {
			continue
		}
		if err := file.print(out); err != nil {
			return shown, err
		}
		shown++
	}
	return shown, nil
}

// wants reports whether a saved log is among those asked for.
func (o logsOptions) wants(f savedLog) bool {
	if o.node != "" && f.node != o.node || strings.HasSuffix(f.name, ".json") {
		return false
	}
	return o.vm < 0 || f.name == "vm"+strconv.Itoa(o.vm)+".console"
}

// printRunning shows the consoles of VMs that are there.
func (o logsOptions) printRunning(ctx context.Context, out io.Writer) (shown int, err error) {
	jobs, err := findJobs(ctx, which{jobs: []string{o.job}})
	if err != nil {
		return 0, err
	}
	asked, err := askAll(ctx, jobs)
	for _, j := range asked {
		for _, n := range j.nodes {
			for _, vm := range n.VMs {
				if err != nil || !o.wants(savedLog{node: n.Node, name: vm.Name + ".console"}) {
					continue
				}
				err = printConsole(ctx, out, j.vmJob, n.Node, vm)
				shown++
			}
		}
	}
	return shown, err
}

func printConsole(ctx context.Context, out io.Writer, job vmJob, node string, vm nodeagent.VM) error {
	printTitle(out, node, vm.Name+".console")
	s := step{job: job, node: node, agent: []string{"query", "console", "--vm=" + strconv.Itoa(vm.Number)}}
	if err := s.run(ctx, streamTo(out)); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out)
	return err
}

func printTitle(out io.Writer, node, name string) { fmt.Fprintf(out, "==> %s: %s <==\n", node, name) }

// savedLogs are the directories in which the logs of a job may lie.
type savedLogs struct{ dirs []string }

// findSaved looks in the job's working directory, and then in this one: Slurm may
// have forgotten the job.
func findSaved(ctx context.Context, job string) (savedLogs, error) {
	id, workDir, err := whereWas(ctx, job)
	if err != nil {
		return savedLogs{}, err
	}
	here, err := os.Getwd()
	if err != nil {
		return savedLogs{}, err
	}
	if workDir == "" {
		workDir = here
	}
	for _, parent := range []string{workDir, here} {
		dirs, err := savedIn(parent, id)
		if err != nil || len(dirs) > 0 {
			return savedLogs{dirs}, err
		}
	}
	return savedLogs{[]string{filepath.Join(workDir, "slurmv-"+id)}}, nil
}

// savedIn returns the directories of a job below parent. A job that was requeued
// has one for each run.
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

// nothing says where logs would be.
func (s savedLogs) nothing(job string) error {
	return fmt.Errorf("job %s has no such logs: no VM of it runs that is asked for, and none are in %s", job, s.dirs[0])
}

// A savedLog is one file of a node.
type savedLog struct{ path, node, name string }

// files are ordered by run, node and name. What cannot be read is left out.
func (s savedLogs) files() []savedLog {
	var files []savedLog
	for _, dir := range s.dirs {
		nodes, _ := os.ReadDir(dir)
		for _, node := range nodes {
			names, _ := os.ReadDir(filepath.Join(dir, node.Name()))
			for _, e := range names {
				files = append(files, savedLog{filepath.Join(dir, node.Name(), e.Name()), node.Name(), e.Name()})
			}
		}
	}
	return files
}

func (f savedLog) print(out io.Writer) error {
	file, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer file.Close()
	printTitle(out, f.node, f.name)
	_, err = io.Copy(out, file)
	fmt.Fprintln(out)
	return err
}

// whereWas returns a job's number and working directory, from Slurm's memory or
// its accounting; the directory is "" if neither knows it.
func whereWas(ctx context.Context, job string) (id, workDir string, err error) {
	text, err := ask(ctx, "scontrol", "--oneliner", "show", "job", job)
	if err == nil {
		id, workDir = describedJob(text)
		return id, workDir, nil
	}
	text, sacctErr := ask(ctx, "sacct", "--jobs="+job, "--allocations", "--noheader", "--parsable2", "--format=jobidraw,workdir")
	if sacctErr == nil {
		if id, workDir, found := strings.Cut(strings.TrimSpace(firstLine(text)), "|"); found {
			return id, workDir, nil
		}
	}
	if strings.Contains(job, "_") || !strings.Contains(err.Error(), "Invalid job id") {
		return "", "", errors.Join(err, sacctErr)
	}
	return job, "", nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

var (
	jobIDField   = regexp.MustCompile(`\bJobId=([0-9]+)`)
	workDirField = regexp.MustCompile(` WorkDir=(.*?)(?: [A-Z][A-Za-z]*=|$)`)
)

// describedJob reads a line of scontrol show job.
func describedJob(text string) (id, workDir string) {
	line := firstLine(text)
	if found := jobIDField.FindStringSubmatch(line); found != nil {
		id = found[1]
	}
	if found := workDirField.FindStringSubmatch(line); found != nil {
		workDir = found[1]
	}
	return id, workDir
}
