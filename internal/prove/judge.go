package prove

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/internal/check"
	"github.com/slurm-v/slurm-v/internal/leftovers"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/pmi"
	"github.com/slurm-v/slurm-v/internal/report"
	"github.com/slurm-v/slurm-v/internal/workload"
)

// An Outcome is what became of a job.
type Outcome struct {
	Refused string // why there is no such job, or why its end was not waited for
	ID      uint32
	State   string // Slurm's last word
	Seconds float64
	Files   Files
}

// ended returns why the job cannot be judged, or "".
func (o Outcome) ended(want string) string {
	switch {
	case o.Refused != "":
		return o.Refused
	case o.State != want:
		return fmt.Sprintf("job %d is %s, not %s: %s", o.ID, o.State, want, orNothing(telling(o.Files[output])))
	}
	return ""
}

func orNothing(text string) string {
	if text == "" {
		return "it has printed nothing"
	}
	return text
}

// A judgement of a step is why it has failed, or "", and what was seen.
type judgement struct {
	why      string
	evidence []string
}

func failedf(format string, args ...any) judgement {
	return judgement{why: fmt.Sprintf(format, args...)}
}

func saw(format string, args ...any) judgement {
	return judgement{evidence: []string{fmt.Sprintf(format, args...)}}
}

// step makes the step.
func (f judgement) step(name, proves string, seconds float64) Step {
	s := Step{Name: name, Proves: proves, Result: Passed, Seconds: seconds, Evidence: f.evidence}
	if f.why != "" {
		s.Result, s.Reason = Failed, f.why
	}
	return s
}

func skipped(name, proves, why string) Step {
	return Step{Name: name, Proves: proves, Result: Skipped, Reason: why}
}

// checksOf reads what slurmv check has said on each node, nil where it has said nothing.
func checksOf(o Outcome, nodes int) [][]check.Result {
	all := make([][]check.Result, nodes)
	for i, text := range o.Files.ofNodes("check", nodes) {
		_ = json.Unmarshal([]byte(text[max(0, strings.Index(text, "[\n")):]), &all[i])
	}
	return all
}

// judgePreflight fails if slurmv check finds an error on any node.
func judgePreflight(o Outcome, checks [][]check.Result) judgement {
	if why := o.ended("COMPLETED"); why != "" {
		return judgement{why: why}
	}
	var f judgement
	for i, results := range checks {
		node := fmt.Sprintf("node %d: ", i+1)
		if results == nil && f.why == "" {
			f.why = node + "slurmv check has said nothing: " + orNothing(telling(o.Files["check-errors."+strconv.Itoa(i)]))
		}
		of := map[check.Status]int{}
		for _, r := range results {
			of[r.Status]++
			if r.Status == check.Error && f.why == "" {
				f.why = node + r.Name + ": " + r.Seen
			}
		}
		f.evidence = append(f.evidence, fmt.Sprintf("%s%d ok, %s, %s, %d skipped", node,
			of[check.OK], report.Count(of[check.Warning], "warning"), report.Count(of[check.Error], "error"), of[check.Skipped]))
	}
	return f
}

// judgeStart expects a program in each VM.
func judgeStart(r Request, o Outcome) judgement {
	if o.Refused != "" {
		return judgement{why: o.Refused}
	}
	c := o.Files.command("start")
	if !c.known {
		return failedf("job %d is %s: %s", o.ID, o.State, orNothing(telling(o.Files[output]+c.errors)))
	}
	if why := c.why(); why != "" {
		return judgement{why: why}
	}
	vms := map[string]bool{}
	for _, f := range decoded[workload.Finding](c.out) {
		vms[f.VM] = true
	}
	if want := r.Nodes * r.VMs; len(vms) != want || vms[""] {
		return failedf("a program ran in %d VMs of %d: %q", len(vms), want, c.out)
	}
	return saw("%s on %s, %.1f s from slurm-v-run to the end of the first program", report.Count(len(vms), "VM"), report.Count(r.Nodes, "node"), c.seconds)
}

// judgeOwner expects the caller's uid in every VM.
func judgeOwner(o Outcome, uid int) judgement {
	found := decoded[workload.Finding](o.Files["start.out"])
	for _, f := range found {
		if f.UID != uid {
			return failedf("in %s the program ran as uid %d, and the job's owner is %d", f.VM, f.UID, uid)
		}
	}
	return saw("the same uid in %s", report.Count(len(found), "VM"))
}

// judgeDirectory expects that what a side has written is what the other reads.
func judgeDirectory(o Outcome) judgement {
	found := decoded[workload.Finding](o.Files["start.out"])
	for _, f := range found {
		if want := strings.TrimSpace(o.Files[workload.FromNode]); f.File != want {
			return failedf("%s reads %q in a file in which the node has written %q", f.VM, f.File, want)
		}
	}
	if got := strings.TrimSpace(o.Files[workload.FromVM]); !strings.HasPrefix(got, "written in vm") {
		return failedf("the node reads %q in a file that a VM has written", got)
	}
	return saw("a file of the node was read in %s, and a file of a VM on the node", report.Count(len(found), "VM"))
}

// judgeRanks expects the right sum in each rank, and that MPI is told the truth about which
// ranks share a VM.
func judgeRanks(r Request, o Outcome) judgement {
	c := o.Files.command("ranks")
	if why := c.why(); why != "" {
		return judgement{why: why}
	}
	found, n := decoded[workload.Finding](c.out), r.ranks()
	if len(found) != n {
		return failedf("%d ranks of %d have spoken", len(found), n)
	}
	slices.SortFunc(found, func(a, b workload.Finding) int { return a.Rank - b.Rank })
	for i, f := range found {
		if want := n * (n - 1) / 2; f.Rank != i || f.Sum != want {
			return failedf("rank %d says that the sum is %d; it is %d", f.Rank, f.Sum, want)
		}
	}
	if why := sharesAsTold(found); why != "" {
		return judgement{why: why}
	}
	return saw("%s in %s add up to %d, and know which of them share a VM", report.Count(n, "rank"), report.Count(r.Nodes*r.VMs, "VM"), n*(n-1)/2)
}

// sharesAsTold compares PMI_process_mapping with the VMs in which the ranks are.
func sharesAsTold(found []workload.Finding) string {
	mapping, err := pmi.ParseMapping(found[0].Mapping)
	if err != nil {
		return "MPI is not told which ranks share a VM: " + err.Error()
	}
	places := mapping.Places(len(found))
	for i, a := range found {
		for j, b := range found {
			if (a.VM == b.VM) != (places[i] == places[j]) {
				return fmt.Sprintf("MPI is told that ranks %d and %d are in places %d and %d; they are in %s and %s", i, j, places[i], places[j], a.VM, b.VM)
			}
		}
	}
	return ""
}

func judgeStreams(o Outcome) judgement {
	c := o.Files.command("streams")
	words := o.Files["words"]
	switch {
	case !c.known:
		return judgement{why: c.why()}
	case c.out != strings.ToUpper(words):
		return failedf("standard output is %q, not the %q of standard input in capitals", c.out, words)
	case !strings.Contains(c.errors, fmt.Sprintf("%d bytes on standard input", len(words))):
		return failedf("standard error is %q", c.errors)
	case c.status != workload.StreamsStatus:
		return failedf("the exit status is %d; the program's is %d", c.status, workload.StreamsStatus)
	}
	return saw("%d bytes in, as many out, a line of errors, exit status %d", len(words), c.status)
}

// judgeTopology expects the CPUs that were asked for, and a lie about hyper-threads in no VM: the guest's scheduler and MPI
// libraries go by them.
func judgeTopology(r Request, o Outcome, nodes []Node) judgement {
	found, most := decoded[workload.Finding](o.Files["start.out"]), 0
	for _, n := range nodes {
		most = max(most, n.Topology.Threads)
	}
	seen := map[workload.Topology]int{}
	for _, f := range found {
		switch has := f.Topology; {
		case has.CPUs != r.VCPUs:
			return failedf("%s has %d CPUs of %d", f.VM, has.CPUs, r.VCPUs)
		case has.Threads > max(most, 1):
			return failedf("%s sees %d hyper-threads in a core, and its node has %d", f.VM, has.Threads, most)
		default:
			seen[has]++
		}
	}
	var all judgement
	for has, vms := range seen {
		all.evidence = append(all.evidence, fmt.Sprintf("%s: %s", report.Count(vms, "VM"), arrangement(has)))
	}
	slices.Sort(all.evidence)
	for i, n := range nodes {
		all.evidence = append(all.evidence, fmt.Sprintf("node %d: %s", i+1, arrangement(n.Topology)))
	}
	return all
}

func arrangement(t workload.Topology) string {
	return fmt.Sprintf("%s × %s × %s", report.Count(t.Sockets, "socket"), report.Count(t.Cores, "core"), report.Count(t.Threads, "thread"))
}

// judgePages expects the memory of all VMs of each node in huge pages.
func judgePages(r Request, o Outcome) (all judgement) {
	for i, text := range o.Files.ofNodes("pages", r.Nodes) {
		var has workload.Pages
		for _, p := range decoded[workload.Pages](text) {
			has = p
		}
		if want := int64(r.VMs) * r.MemoryMiB; has.VMs != r.VMs || has.HugeMiB < want {
			return failedf("node %d: %s of %d with %d MiB in huge pages, of %d", i+1, report.Count(has.VMs, "VM"), r.VMs, has.HugeMiB, want)
		}
		all.evidence = append(all.evidence, fmt.Sprintf("node %d: %d MiB of %s in huge pages", i+1, has.HugeMiB, report.Count(has.VMs, "VM")))
	}
	return all
}

func judgeVFs(o Outcome, want int) judgement {
	found := decoded[workload.Finding](o.Files["start.out"])
	for _, f := range found {
		if f.VFs != want {
			return failedf("%s has %d virtual functions of %d", f.VM, f.VFs, want)
		}
	}
	return saw("%d in each of %s", want, report.Count(len(found), "VM"))
}

// judgeShare expects each rank to see what those of its node have written, and only that.
func judgeShare(r Request, o Outcome) judgement {
	c := o.Files.command("share")
	if why := c.why(); why != "" {
		return judgement{why: why}
	}
	found := decoded[workload.Finding](c.out)
	if len(found) != r.ranks() {
		return failedf("%d ranks of %d have spoken", len(found), r.ranks())
	}
	for _, f := range found {
		switch {
		case f.Shared == nil:
			return failedf("rank %d has no shared memory", f.Rank)
		case !f.Shared.Zero:
			return failedf("rank %d found something in the memory before anybody wrote", f.Rank)
		case len(f.Shared.Peers) != r.ranksPerNode() || !slices.Equal(f.Shared.Peers, f.Shared.Read):
			return failedf("rank %d shares its memory with the ranks %v, and read those of %v", f.Rank, f.Shared.Peers, f.Shared.Read)
		}
	}
	return saw("on each node %s in %s read each other's words, and no other node's", report.Count(r.ranksPerNode(), "rank"), report.Count(r.VMs, "VM"))
}

// A side is one of the two on which the program is measured.
type side struct {
	name, where string // name is that of its runs
	inVMs       bool
}

var bothSides = []side{{"bare", "on bare nodes", false}, {"vms", "in VMs", true}}

// measured are the values of all rounds, by side and metric.
type measured struct {
	values    map[string]map[string][]float64
	checksums map[uint64]bool
}

// judgeCosts fails if a side could not be measured, or computed something else.
func judgeCosts(r Request, o Outcome, emulated bool) (judgement, []Comparison) {
	m := measured{map[string]map[string][]float64{"bare": {}, "vms": {}}, map[uint64]bool{}}
	for round := 1; round <= r.Rounds; round++ {
		for _, side := range bothSides {
			if why := m.read(r, o.Files, side, round); why != "" {
				return failedf("%s, round %d: %s", side.where, round, why), nil
			}
		}
	}
	if len(m.checksums) != 1 {
		return failedf("the computation has %d different results", len(m.checksums)), nil
	}
	j := saw("%s on each side, in turns, by %s; the computation has one result", report.Count(r.Rounds, "round"), report.Count(r.ranks(), "rank"))
	if r.ranks() > 1 {
		j.evidence = append(j.evidence, way(r))
	}
	return j, m.compare(emulated)
}

// way says where the ranks that exchange messages are.
func way(r Request) string {
	switch {
	case r.Nodes > 1:
		return "messages go from one node to another, and from a VM on one to a VM on the other"
	case r.VMs > 1:
		return "messages go from one process of a node to another, and from one of its VMs to another"
	}
	return "messages go from one process of a node to another, and from one process of a VM to another"
}

// read adds the values of a side's round, or returns what is wrong with it.
func (m measured) read(r Request, files Files, side side, round int) (why string) {
	c := files.command(fmt.Sprintf("%s.%d", side.name, round))
	if why := c.why(); why != "" {
		return why
	}
	samples := decoded[workload.Sample](c.out)
	if len(samples) != r.ranks() {
		return fmt.Sprintf("%d ranks of %d have spoken", len(samples), r.ranks())
	}
	for _, s := range samples {
		if (s.VM != "") != side.inVMs {
			return fmt.Sprintf("rank %d ran elsewhere (%q)", s.Rank, s.VM)
		}
		m.checksums[s.Checksum] = true
	}
	add(m.values[side.name], samples)
	return m.readProgram(r, files, side, round)
}

func (m measured) readProgram(r Request, files Files, side side, round int) (why string) {
	if r.Program == "" {
		return ""
	}
	c := files.command(fmt.Sprintf("%s-program.%d", side.name, round))
	if why := c.why(); why != "" {
		return "the site's program: " + why
	}
	m.values[side.name]["program"] = append(m.values[side.name]["program"], c.seconds)
	return ""
}

// add adds the values of a run: the slowest rank's, all ranks', or the first's.
func add(of map[string][]float64, samples []workload.Sample) {
	var one workload.Sample
	for _, s := range samples {
		one.Compute, one.Memory = max(one.Compute, s.Compute), one.Memory+s.Memory
		one.Latency, one.Bandwidth = max(one.Latency, s.Latency), max(one.Bandwidth, s.Bandwidth)
	}
	of["compute"] = append(of["compute"], one.Compute)
	of["memory"] = append(of["memory"], one.Memory)
	if one.Latency > 0 {
		of["latency"], of["bandwidth"] = append(of["latency"], one.Latency), append(of["bandwidth"], one.Bandwidth)
	}
}

func (m measured) compare(emulated bool) (all []Comparison) {
	for _, what := range metrics {
		bare, vms := m.values["bare"][what.name], m.values["vms"][what.name]
		if len(bare)+len(vms) > 0 {
			all = append(all, compare(what, bare, vms, emulated))
		}
	}
	return all
}

// judgeLoss expects the program to end with a sentence when its VM's QEMU is killed.
func judgeLoss(o Outcome) judgement {
	lose, lost := o.Files.command("lose"), o.Files.command("lost")
	switch {
	case lose.why() != "":
		return judgement{why: "kill a QEMU: " + lose.why()}
	case !lost.known:
		return failedf("the program in the VM has not ended")
	case lost.status == 0 || telling(lost.errors) == "":
		return failedf("the program ended with status %d, and said %q", lost.status, lost.errors)
	}
	return saw("the program ended with status %d: %s", lost.status, telling(lost.errors))
}

// judgeEnd expects the state with which Slurm ends such a job.
func judgeEnd(o Outcome, want string) judgement {
	if why := o.ended(want); why != "" {
		return judgement{why: why}
	}
	if !strings.Contains(o.Files[output], running) {
		return failedf("no program ran in its VM before it ended: %s", orNothing(telling(o.Files[output])))
	}
	return saw("a program ran in its VM; then the job was %s", want)
}

// judgeLeft expects that the search after the jobs has found nothing on any node.
func judgeLeft(o Outcome, nodes int) judgement {
	if why := o.ended("COMPLETED"); why != "" {
		return judgement{why: why}
	}
	for i, text := range o.Files.ofNodes("left", nodes) {
		found, looked := things(text)
		switch {
		case !looked:
			return failedf("node %d was not searched: %s", i+1, orNothing(telling(text+o.Files["left.err"])))
		case len(found) > 0:
			return failedf("node %d: %s left; the first: %s", i+1, leftovers.Kinds(found), found[0])
		}
	}
	return saw("after the jobs, %s had nothing of them", report.Count(nodes, "node"))
}

// judgeSearch expects that the same search has found the VMs while they ran.
func judgeSearch(vms Outcome, nodes int) judgement {
	for i, text := range vms.Files.ofNodes("held", nodes) {
		if found, looked := things(text); !looked || len(found) == 0 {
			return failedf("node %d: the search found nothing while VMs ran there, so it proves nothing: %s", i+1, orNothing(telling(text+vms.Files["held.err"])))
		}
	}
	held, _ := things(vms.Files["held.0"])
	return saw("while VMs ran, the first node had %s", leftovers.Kinds(held))
}

// things reads what slurmv leftovers has printed; looked is whether it did all of it.
func things(text string) (found []leftovers.Thing, looked bool) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if t, ok := leftovers.Parse(line); ok {
			found = append(found, t)
		}
		looked = looked || line == "looked"
	}
	return found, looked
}

// launchOf reads the record of the VMs' start.
func launchOf(o Outcome) (nodes []nodeagent.NodeVMs) {
	_ = json.Unmarshal([]byte(o.Files["report.out"]), &nodes)
	return nodes
}

func stagesOf(launched []nodeagent.NodeVMs) (all []Stage) {
	for _, row := range report.Rows(launched) {
		all = append(all, Stage{row.Stage, row.Min.Seconds(), row.Median.Seconds(), row.Max.Seconds(), row.Meaning})
	}
	return all
}
