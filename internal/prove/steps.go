package prove

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/check"
	"github.com/slurm-v/slurm-v/internal/workload"
)

// Steps that may be left out.
const (
	stepVFs   = "virtual functions"
	stepShare = "shared memory"
	stepPages = "huge pages"
)

// Evidence is everything from which a proof is made.
type Evidence struct {
	Request Request // with the nodes that its jobs had
	Config  config.Config
	UID     int               // of the caller
	Without map[string]string // see [Request.Possible]
	Own     []check.Result    // what slurmv check says to root on the caller's host; nil if it was not asked

	// By the jobs' names. A job that is not there was not submitted.
	Outcomes map[string]Outcome
}

// Judge makes the proof, without date and versions.
func (e Evidence) Judge() Proof {
	r, vms := e.Request, e.Outcomes[jobVMs]
	launched := launchOf(vms)
	p := Proof{Setting: r.setting(), Stages: stagesOf(launched)}
	if len(launched) > 0 {
		p.Setting.Accel, p.Setting.Pinned = launched[0].Accel, launched[0].Unpinned == ""
	}
	checks := checksOf(e.Outcomes[jobNodes], r.Nodes)
	p.Nodes, p.Software = nodesOf(e.Outcomes[jobNodes], checks), softwareOf(checks)
	p.Steps = append([]Step{e.preflight(checks)}, e.inVMs(&p)...)
	p.Steps = append(p.Steps, e.ends()...)
	p.Passed = !slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Result == Failed })
	return p
}

func (r Request) setting() Setting {
	return Setting{HugePages: r.HugePages, Nodes: r.Nodes, VMs: r.VMs, VCPUs: r.VCPUs, MemoryMiB: r.MemoryMiB, SRIOV: r.SRIOV, IVShmem: r.IVShmem, Rounds: r.Rounds, Quick: r.Quick}
}

func (e Evidence) preflight(checks [][]check.Result) Step {
	o := e.Outcomes[jobNodes]
	f := judgePreflight(o, checks)
	for _, own := range e.Own {
		if own.Status == check.Error && f.why == "" {
			f.why = "to root on this host: " + own.Name + ": " + own.Seen
		}
	}
	if e.Own != nil {
		f.evidence = append(f.evidence, fmt.Sprintf("as root on the host of slurmv prove: %d checks", len(e.Own)))
	}
	return f.step("preflight", "The nodes have what VM jobs need, as slurmv check says.", o.Seconds)
}

const startProves = "A job's VMs boot, and its program runs in each of them."

// inVMs are the steps of the job with VMs. They need its start.
func (e Evidence) inVMs(p *Proof) []Step {
	r := e.Request
	o, submitted := e.Outcomes[jobVMs]
	start, all := judgeStart(r, o), []Step{skipped("start", startProves, "there were no nodes for VMs")}
	if submitted {
		all[0] = start.step("start", startProves, o.Files.command("start").seconds)
	}
	later := []struct {
		name, proves string
		runs         []string // whose time is the step's
		without      string
		judge        func() judgement
	}{
		{"owner", "Programs in VMs run as the job's owner.", nil, "", func() judgement { return judgeOwner(o, e.UID) }},
		{"directory", "VMs and nodes see the same files in the job's directory.", nil, "", func() judgement { return judgeDirectory(o) }},
		{"ranks", "Ranks in all VMs find each other by Slurm's PMI and talk over the VMs' network.", []string{"ranks"}, "", func() judgement { return judgeRanks(r, o) }},
		{"streams", "Standard input, output, error and the exit status are the program's.", []string{"streams"}, "", func() judgement { return judgeStreams(o) }},
		{"topology", "Each VM has the CPUs that the job asked for, and no more hyper-threads in a core than its node.", nil, "", func() judgement { return judgeTopology(r, o, p.Nodes) }},
		{stepPages, "All memory of the VMs is in huge pages.", []string{"pages"}, e.withoutPages(), func() judgement { return judgePages(r, o) }},
		{stepVFs, "Each VM has the virtual functions that the job asked for.", nil, e.withoutVFs(), func() judgement { return judgeVFs(o, r.vfs(e.Config)) }},
		{stepShare, "VMs of a node share memory (IVShmem), and those of different nodes do not.", []string{"share"}, e.withoutShare(), func() judgement { return judgeShare(r, o) }},
		{"cost", "The same program is measured in the VMs and on their bare nodes, in turns.", []string{"bare", "vms"}, "", func() judgement {
			f, costs := judgeCosts(r, o, p.Setting.Emulated())
			p.Costs = costs
			return f
		}},
		{"loss", "If QEMU is killed, the program in its VM ends, with a sentence that says why.", []string{"lost"}, "", func() judgement { return judgeLoss(o) }},
	}
	for _, s := range later {
		switch {
		case s.without != "":
			all = append(all, skipped(s.name, s.proves, s.without))
		case start.why != "":
			all = append(all, skipped(s.name, s.proves, noVMs))
		default:
			all = append(all, s.judge().step(s.name, s.proves, o.Files.seconds(s.runs...)))
		}
	}
	return all
}

// noVMs is why further steps are left out.
const noVMs = "the VMs did not start"

func (e Evidence) withoutVFs() string {
	if why := e.Without[stepVFs]; why != "" || e.Request.SRIOV != "" {
		return why
	}
	return "not asked for; --sriov=1 does"
}

// withoutPages is why huge pages are not looked for: the site's own choice may be to do without them.
func (e Evidence) withoutPages() string {
	if config.HugePages(e.Request.HugePages).Size() == 0 {
		return "not asked for; --vm-hugepages=2M does"
	}
	return ""
}

func (e Evidence) withoutShare() string {
	if why := e.Without[stepShare]; why != "" || e.Request.IVShmem > 0 {
		return why
	}
	return "not asked for; --ivshmem=1 does"
}

// ends are the steps about how jobs end.
func (e Evidence) ends() []Step {
	ending := func(name, proves, job, want, without string) Step {
		o, submitted := e.Outcomes[job]
		if !submitted {
			return skipped(name, proves, without)
		}
		return judgeEnd(o, want).step(name, proves, o.Seconds)
	}
	return []Step{
		ending("cancel", "A job with a running VM is cancelled.", jobCancel, "CANCELLED", noVMs),
		ending("time limit", "A job with a running VM ends when its time is up.", jobLimit, "TIMEOUT", e.withoutLimit()),
		e.left(),
	}
}

// left needs VMs that the search has found. What it finds without them counts all the same.
func (e Evidence) left() Step {
	const name, proves = "leftovers", "After these jobs the nodes have nothing of them: no process, device, file, mount or cgroup."
	left, searched := e.Outcomes[jobLeft]
	if !searched {
		return skipped(name, proves, "no job with VMs had nodes")
	}
	after := judgeLeft(left, e.Request.Nodes)
	if after.why == "" && judgeStart(e.Request, e.Outcomes[jobVMs]).why != "" {
		return skipped(name, proves, noVMs+", and nothing shows that the search finds anything")
	}
	while := judgeSearch(e.Outcomes[jobVMs], e.Request.Nodes)
	if after.why == "" {
		after.why = while.why
	}
	after.evidence = append(while.evidence, after.evidence...)
	return after.step(name, proves, left.Seconds)
}

func (e Evidence) withoutLimit() string {
	if e.Request.Quick {
		return "--quick leaves it out: Slurm's shortest limit is a minute"
	}
	return noVMs
}

func nodesOf(o Outcome, checks [][]check.Result) (all []Node) {
	for i, text := range o.Files.ofNodes("machine", len(checks)) {
		var n Node
		for _, m := range decoded[workload.Machine](text) {
			n.Machine = m
		}
		for _, r := range checks[i] {
			n.Checks = append(n.Checks, Check{r.Name, string(r.Status)})
		}
		all = append(all, n)
	}
	return all
}

// softwareOf are the versions that slurmv check has seen on the first node.
func softwareOf(checks [][]check.Result) (all []string) {
	if len(checks) == 0 {
		return nil
	}
	for _, r := range checks[0] {
		switch r.Name {
		case "QEMU": // behind the path
			_, version, _ := strings.Cut(r.Seen, ": ")
			all = append(all, r.Name+": "+strings.TrimPrefix(version, "QEMU emulator version "))
		case "libvirt":
			_, version, _ := strings.Cut(r.Seen, ", version ")
			all = append(all, r.Name+": "+version)
		}
	}
	return all
}
