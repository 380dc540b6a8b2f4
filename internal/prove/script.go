package prove

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/config"
)

// A Job is a batch job of the proof. Its files are in a directory of its name.
type Job struct {
	Name     string
	Script   string // the whole text, with its #SBATCH lines
	CancelAt string // the job is cancelled when its output has this text; "" if it is not
}

// The names of the jobs.
const (
	jobNodes  = "nodes"
	jobVMs    = "vms"
	jobCancel = "cancel"
	jobLimit  = "limit"
	jobLeft   = "left"
)

// output is the file with the output of a batch script.
const output = "out"

// running is what a program that stays says first.
const running = "running"

// head defines what the scripts use. The commands of bare and vms differ in nothing but
// where they run a program.
const head = `
# run NAME COMMAND...: its output, its error output, and "STATUS BEGIN END" are files.
run() {
	local name=$1 begin status=0
	shift
	begin=$(date +%s.%N)
	"$@" >"$name.out" 2>"$name.err" || status=$?
	echo "$status $begin $(date +%s.%N)" >"$name.status"
	return $status
}
# bare, vms SRUN-OPTION... PROGRAM: runs it on the nodes, or in their VMs.
bare() { srun --overlap --mem=0 --mpi=pmi2 --kill-on-bad-exit=1 "$@"; }
`

// script joins the parts of a batch script.
func (r Request) script(job string, directives []string, body ...string) string {
	lines := []string{
		"#!/bin/bash",
		"# Made by slurmv prove. To submit it again by hand: sbatch script, in this directory.",
		"#SBATCH --job-name=slurmv-prove-" + job + " --output=" + output,
	}
	for _, option := range r.Options {
		lines = append(lines, "#SBATCH "+option)
	}
	text := strings.Join(append(lines, directives...), "\n") + "\n" + head
	text += "vms() { " + quote(r.Programs.Run) + " --quiet --kill-on-bad-exit=1 \"$@\"; }\n\n"
	return text + strings.Join(body, "\n") + "\n"
}

// quote makes a word of shell, and of an #SBATCH line.
func quote(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%"
	if strings.Trim(word, plain) == "" && word != "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func (r Request) everyRank() string {
	return fmt.Sprintf("--nodes=%d --ntasks=%d --ntasks-per-node=%d", r.Nodes, r.ranks(), r.ranksPerNode())
}

func (r Request) everyVM() string {
	return fmt.Sprintf("--nodes=%d --ntasks=%d --ntasks-per-node=%d", r.Nodes, r.Nodes*r.VMs, r.VMs)
}

func (r Request) everyNode() string {
	return fmt.Sprintf("--nodes=%d --ntasks=%[1]d --ntasks-per-node=1", r.Nodes)
}

const oneRank = "--nodes=1 --ntasks=1"

// NodesJob examines the nodes that it gets. It needs no VM.
func (r Request) NodesJob() Job {
	return Job{Name: jobNodes, Script: r.script(jobNodes, r.nodeDirectives(),
		fmt.Sprintf("run check srun %s --output=check.%%n --error=check-errors.%%n %s check --output json", r.everyNode(), quote(r.Programs.Slurmv)),
		fmt.Sprintf("run machine srun %s --output=machine.%%n %s machine", r.everyNode(), quote(r.Programs.Workload)),
		"exit 0")}
}

// nodeDirectives are the #SBATCH lines of a job without VMs that has a task on each node.
func (r Request) nodeDirectives() []string {
	return append([]string{"#SBATCH " + r.everyNode() + " --time=10"}, r.on()...)
}

// on is the line that asks for the nodes, if they are known.
func (r Request) on() []string {
	if len(r.On) == 0 {
		return nil
	}
	return []string{"#SBATCH --nodelist=" + strings.Join(r.On, ",")}
}

// VMJob starts VMs, tries everything in them, and measures. At its end it kills a QEMU.
func (r Request) VMJob(cfg config.Config) (Job, error) {
	directives, err := r.directives(cfg, r.Minutes, r.bareMiB())
	directives = append(directives, "#SBATCH --vm-start=cold")
	parts := []string{r.start()}
	if r.IVShmem > 0 {
		parts = append(parts, fmt.Sprintf("run share vms %s ./workload share", r.everyRank()))
	}
	return Job{Name: jobVMs, Script: r.script(jobVMs, directives, append(parts, r.measurements(), r.loss())...)}, err
}

// directives are the #SBATCH lines of a job with VMs.
func (r Request) directives(cfg config.Config, minutes int, extraMiB int64) ([]string, error) {
	lines := append([]string{fmt.Sprintf("#SBATCH --nodes=%d --time=%d", r.Nodes, minutes)}, r.on()...)
	options := r.vmOptions()
	for _, name := range slices.Sorted(maps.Keys(options)) {
		lines = append(lines, "#SBATCH --"+name+"="+quote(options[name]))
	}
	more, err := r.resources(cfg, extraMiB)
	return append(lines, more...), err
}

func (r Request) copyWorkload() string {
	return fmt.Sprintf("cp %s workload || exit", quote(r.Programs.Workload))
}

func (r Request) start() string {
	return strings.Join([]string{
		r.copyWorkload(),
		"echo 'written on a node' >from-node",
		"echo 'words on standard input' >words",
		fmt.Sprintf("run start vms %s ./workload look || exit", r.everyVM()),
		fmt.Sprintf(`run report %s report --output json "$SLURM_JOB_ID"`, quote(r.Programs.Slurmv)),
		"# While the VMs run, the search for leftovers must find them.",
		fmt.Sprintf(`run held bare %s --output=held.%%n %s leftovers "$SLURM_JOB_ID"`, r.everyNode(), quote(r.Programs.Slurmv)),
		fmt.Sprintf(`run pages bare %s --output=pages.%%n ./workload pages "$SLURM_JOB_ID"`, r.everyNode()),
		fmt.Sprintf("run ranks vms %s ./workload meet", r.everyRank()),
		fmt.Sprintf("run streams vms %s ./workload streams <words", oneRank),
	}, "\n")
}

// measurements has both sides work in turns, so that both find the machine in the same
// state. No side always comes first.
func (r Request) measurements() string {
	l := r.load()
	lines := []string{
		fmt.Sprintf("for round in $(seq %d); do", r.Rounds),
		"	((round % 2)) && sides='bare vms' || sides='vms bare'",
		"	for side in $sides; do",
		fmt.Sprintf("		run \"$side.$round\" \"$side\" %s ./workload measure --loops=%d --elements=%d --passes=%d --answers=%d --blocks=%d",
			r.everyRank(), l.Loops, l.Elements, l.Passes, l.Answers, l.Blocks),
	}
	words := strings.Fields(r.Program)
	for i := range words {
		words[i] = quote(words[i])
	}
	if len(words) > 0 {
		lines = append([]string{"cp " + words[0] + " program || exit"}, lines...)
		lines = append(lines, fmt.Sprintf("		run \"$side-program.$round\" \"$side\" %s ./program %s", r.everyRank(), strings.Join(words[1:], " ")))
	}
	return strings.Join(append(lines, "	done", "done"), "\n")
}

// loss kills the QEMU of a VM in which a program runs.
func (r Request) loss() string {
	return strings.Join([]string{
		"run lost vms " + oneRank + " ./workload stay &",
		"for ((i = 0; i < 240; i++)); do grep -qs " + running + " lost.out && break; sleep 0.5; done",
		fmt.Sprintf(`run lose %s lose-vm "$SLURM_JOB_ID"`, quote(r.Programs.Slurmv)),
		"wait",
		"exit 0",
	}, "\n")
}

// CancelJob has a VM with a program, and is cancelled.
func (r Request) CancelJob(cfg config.Config) (Job, error) {
	job, err := r.staying(cfg, jobCancel, r.Minutes)
	job.CancelAt = running
	return job, err
}

// LimitJob has a VM with a program, until its time is up.
func (r Request) LimitJob(cfg config.Config) (Job, error) { return r.staying(cfg, jobLimit, 1) }

func (r Request) staying(cfg config.Config, name string, minutes int) (Job, error) {
	r.VMs, r.VCPUs, r.IVShmem = 1, 1, 0
	r = r.Placed(r.On[:1])
	directives, err := r.directives(cfg, minutes, 0)
	return Job{Name: name, Script: r.script(name, directives, r.copyWorkload(), "vms "+oneRank+" ./workload stay")}, err
}

// LeftJob looks for what ended jobs have left on their nodes.
func (r Request) LeftJob(jobs []uint32) Job {
	words := make([]string, len(jobs))
	for i, id := range jobs {
		words[i] = fmt.Sprint(id)
	}
	return Job{Name: jobLeft, Script: r.script(jobLeft, r.nodeDirectives(),
		fmt.Sprintf("run left srun %s --output=left.%%n %s leftovers --wait=2m %s", r.everyNode(), quote(r.Programs.Slurmv), strings.Join(words, " ")),
		"exit 0")}
}
