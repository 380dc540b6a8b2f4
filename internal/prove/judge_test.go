package prove

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/check"
)

// asked is two nodes with two VMs each, and two rounds.
func asked() Request {
	return Request{
		Nodes: 2, VMs: 2, VCPUs: 1, MemoryMiB: 512, SRIOV: "1", IVShmem: 1, HugePages: "2M", Rounds: 2, Minutes: 120, On: []string{"n1", "n2"},
		Programs: Programs{Slurmv: "/usr/bin/slurmv", Run: "/usr/bin/slurm-v-run", Workload: "/usr/libexec/slurmv-workload"},
	}
}

const done = "0 10.0 12.5\n"

// good is the evidence of a site where everything works.
func good() Evidence {
	nodes := Files{"out": ""}
	left, vms := Files{"left.0": "looked\n", "left.1": "looked\n"}, Files{
		"from-node": "written on a node\n", "from-vm": "written in vm0\n", "words": "words on standard input\n",
		"streams.out": "WORDS ON STANDARD INPUT\n", "streams.err": "24 bytes on standard input\n", "streams.status": "23 1 2\n",
		"lost.out": "running\n", "lost.err": "slurm-v: n1: vm0 failed: its QEMU process ended\n", "lost.status": "1 1 2\n",
		"held.0": "link: svb7\nprocess: 5 qemu\nlooked\n", "held.1": "process: 6 qemu\nlooked\n",
		"report.out": `[{"node": "n1", "accel": "kvm", "vms": [{"name": "vm0", "stages": [{"name": "boot", "start_ns": 0, "end_ns": 2000000000}]}]}]`,
	}
	for i := range 2 {
		nodes[fmt.Sprintf("check.%d", i)] = `[
  {"name": "QEMU", "status": "ok", "seen": "/usr/bin/qemu: QEMU emulator version 7.2"},
  {"name": "SR-IOV", "status": "ok", "seen": "eth0: 8 of 8 VFs"}
]`
		nodes[fmt.Sprintf("machine.%d", i)] = `{"cpu": "a CPU", "cpus": 8, "memory_mib": 8000, "kernel": "6.1", "topology": {"cpus": 8, "sockets": 1, "cores": 4, "threads": 2}}` + "\n"
		vms[fmt.Sprintf("pages.%d", i)] = `{"vms": 2, "huge_mib": 1024}` + "\n"
	}
	for _, run := range []string{"start", "report", "held", "ranks", "share", "lose", "bare.1", "bare.2", "vms.1", "vms.2"} {
		vms[run+".status"] = done
	}
	for rank := range 4 {
		vm := fmt.Sprintf("vm%d", rank)
		vms["start.out"] += fmt.Sprintf(`{"rank": %d, "vm": %q, "uid": 1000, "file": "written on a node", "topology": {"cpus": 1, "sockets": 1, "cores": 1, "threads": 1}, "vfs": 1}`+"\n", rank, vm)
		vms["ranks.out"] += fmt.Sprintf(`{"rank": %d, "vm": %q, "sum": 6, "mapping": "(vector,(0,4,1))"}`+"\n", rank, vm)
		of := fmt.Sprintf("[%d, %d]", rank/2*2, rank/2*2+1)
		vms["share.out"] += fmt.Sprintf(`{"rank": %d, "shared": {"zero": true, "peers": %s, "read": %[2]s}}`+"\n", rank, of)
		for round := 1; round <= 2; round++ {
			vms[fmt.Sprintf("bare.%d.out", round)] += fmt.Sprintf(`{"rank": %d, "vm": "", "checksum": 7, "compute_s": 1.%d, "memory_mb_s": 100, "latency_us": %d}`+"\n", rank, rank, 10*((rank+4)/4%2))
			vms[fmt.Sprintf("vms.%d.out", round)] += fmt.Sprintf(`{"rank": %d, "vm": %q, "checksum": 7, "compute_s": 2.%[1]d, "memory_mb_s": 50}`+"\n", rank, vm)
		}
	}
	return Evidence{
		Request: asked(), Config: config.Default(), UID: 1000,
		Outcomes: map[string]Outcome{
			jobNodes:  {ID: 1, State: "COMPLETED", Files: nodes},
			jobVMs:    {ID: 2, State: "COMPLETED", Files: vms},
			jobCancel: {ID: 3, State: "CANCELLED", Files: Files{"out": "running\n"}},
			jobLimit:  {ID: 4, State: "TIMEOUT", Files: Files{"out": "running\n"}},
			jobLeft:   {ID: 5, State: "COMPLETED", Files: left},
		},
	}
}

// set changes the outcome of a job.
func (e Evidence) set(job string, change func(*Outcome)) {
	o := e.Outcomes[job]
	change(&o)
	e.Outcomes[job] = o
}

// file replaces a part of a file of the job with VMs.
func (e Evidence) file(name, old, by string) {
	if !strings.Contains(e.Outcomes[jobVMs].Files[name], old) {
		panic(name + " has no " + old)
	}
	e.Outcomes[jobVMs].Files[name] = strings.Replace(e.Outcomes[jobVMs].Files[name], old, by, 1)
}

// results are the steps that have not passed, with their reasons.
func results(p Proof) map[string]string {
	all := map[string]string{}
	for _, s := range p.Steps {
		if s.Result != Passed {
			all[s.Name] = string(s.Result) + ": " + s.Reason
		}
	}
	return all
}

func TestJudge(t *testing.T) {
	change := func(name, old, by string) func(Evidence) { return func(e Evidence) { e.file(name, old, by) } }
	outcome := func(job string, to Outcome) func(Evidence) {
		return func(e Evidence) { e.set(job, func(o *Outcome) { *o = to }) }
	}
	tests := map[string]struct {
		change func(Evidence)
		want   map[string]string
	}{
		"everything works": {func(Evidence) {}, nil},
		"a program ran in fewer VMs": {change("start.out", `"vm3"`, `"vm2"`), map[string]string{
			"start": "failed: a program ran in 3 VMs of 4: ", "owner": "skipped: the VMs did not start"}},
		"a program ran on a node": {change("start.out", `"vm3"`, `""`), map[string]string{"start": "failed: a program ran in 4 VMs of 4"}},
		"another user":            {change("start.out", "1000", "0"), map[string]string{"owner": "failed: in vm0 the program ran as uid 0, and the job's owner is 1000"}},
		"a file of the node is not seen": {change("start.out", "written on a node", ""), map[string]string{
			"directory": `failed: vm0 reads "" in a file in which the node has written "written on a node"`}},
		"a file of a VM is not seen": {change("from-vm", "written in vm0", ""), map[string]string{
			"directory": `failed: the node reads "" in a file that a VM has written`}},
		"the ranks add up wrongly": {change("ranks.out", `"sum": 6`, `"sum": 5`), map[string]string{"ranks": "failed: rank 0 says that the sum is 5; it is 6"}},
		"a rank is missing":        {change("ranks.out", `{"rank": 3`, `{{"rank": 3`), map[string]string{"ranks": "failed: 3 ranks of 4 have spoken"}},
		"MPI is told of nodes": {change("ranks.out", "(vector,(0,4,1))", "(vector,(0,2,2))"), map[string]string{
			"ranks": "failed: MPI is told that ranks 0 and 1 are in places 0 and 0; they are in vm0 and vm1"}},
		"MPI is told nothing": {change("ranks.out", "(vector,(0,4,1))", ""), map[string]string{"ranks": "failed: MPI is not told which ranks share a VM"}},
		"a rank fails": {func(e Evidence) {
			e.file("ranks.status", "0 ", "1 ")
			e.Outcomes[jobVMs].Files["ranks.err"] = "srun: error: n1: task 0: Exited with exit code 1\nslurmv-workload: rank 0: connect to rank 1: refused\n"
		}, map[string]string{"ranks": "failed: slurmv-workload: rank 0: connect to rank 1: refused"}},
		"output is changed":      {change("streams.out", "\n", "\r\n"), map[string]string{"streams": `failed: standard output is "WORDS ON STANDARD INPUT\r\n"`}},
		"error output is lost":   {change("streams.err", "24 bytes on standard input", ""), map[string]string{"streams": "failed: standard error is"}},
		"the status is lost":     {change("streams.status", "23", "1"), map[string]string{"streams": "failed: the exit status is 1; the program's is 23"}},
		"a CPU is missing":       {change("start.out", `"cpus": 1`, `"cpus": 0`), map[string]string{"topology": "failed: vm0 has 0 CPUs of 1"}},
		"too many hyper-threads": {change("start.out", `"threads": 1`, `"threads": 4`), map[string]string{"topology": "failed: vm0 sees 4 hyper-threads in a core, and its node has 2"}},
		"ordinary pages":         {change("pages.1", `1024`, `512`), map[string]string{"huge pages": "failed: node 2: 2 VMs of 2 with 512 MiB in huge pages, of 1024"}},
		"a VF is missing":        {change("start.out", `"vfs": 1`, `"vfs": 0`), map[string]string{"virtual functions": "failed: vm0 has 0 virtual functions of 1"}},
		"memory of an earlier run": {change("share.out", "true", "false"), map[string]string{
			"shared memory": "failed: rank 0 found something in the memory before anybody wrote"}},
		"memory of another node": {change("share.out", `"read": [0, 1]`, `"read": [0, 1, 2]`), map[string]string{
			"shared memory": "failed: rank 0 shares its memory with the ranks [0 1], and read those of [0 1 2]"}},
		"a side was not measured": {change("vms.2.status", "0 ", "1 "), map[string]string{"cost": "failed: in VMs, round 2: exit status 1, and no words"}},
		"a rank computes otherwise": {change("vms.2.out", `"checksum": 7`, `"checksum": 8`), map[string]string{
			"cost": "failed: the computation has 2 different results"}},
		"both sides ran in VMs":   {change("bare.1.out", `"vm": ""`, `"vm": "vm0"`), map[string]string{"cost": `failed: on bare nodes, round 1: rank 0 ran elsewhere ("vm0")`}},
		"no QEMU was killed":      {change("lose.status", "0 ", "1 "), map[string]string{"loss": "failed: kill a QEMU: exit status 1, and no words"}},
		"nobody heard of the end": {change("lost.err", "slurm-v: n1: vm0 failed: its QEMU process ended", ""), map[string]string{"loss": "failed: the program ended with status 1, and said"}},
		"the program went on":     {change("lost.status", "1 1 2\n", ""), map[string]string{"loss": "failed: the program in the VM has not ended"}},
		"it was not cancelled": {outcome(jobCancel, Outcome{ID: 3, State: "COMPLETED", Files: Files{"out": "running\n"}}), map[string]string{
			"cancel": "failed: job 3 is COMPLETED, not CANCELLED: running"}},
		"it was cancelled before a program ran": {outcome(jobCancel, Outcome{ID: 3, State: "CANCELLED"}), map[string]string{
			"cancel": "failed: no program ran in its VM before it ended: it has printed nothing"}},
		"it did not end": {outcome(jobLimit, Outcome{ID: 4, Refused: "job 4 is RUNNING after 1h"}), map[string]string{"time limit": "failed: job 4 is RUNNING after 1h"}},
		"something is left": {outcome(jobLeft, Outcome{ID: 5, State: "COMPLETED", Files: Files{"left.0": "looked\n", "left.1": "link: svb7\nprocess: 5 x\nlooked\n"}}), map[string]string{
			"leftovers": "failed: node 2: 1 link, 1 process left; the first: link: svb7"}},
		"something is left, though the VMs did not start": {func(e Evidence) {
			e.file("start.status", "0 ", "1 ")
			e.Outcomes[jobLeft].Files["left.0"] = "link: svb7\nlooked\n"
		}, map[string]string{"leftovers": "failed: node 1: 1 link left; the first: link: svb7"}},
		"nothing is left, and the VMs did not start": {change("start.status", "0 ", "1 "), map[string]string{
			"leftovers": "skipped: the VMs did not start, and nothing shows that the search finds anything"}},
		"a node was not searched": {outcome(jobLeft, Outcome{ID: 5, State: "COMPLETED", Files: Files{"left.0": "looked\n", "left.err": "srun: error: no"}}), map[string]string{
			"leftovers": "failed: node 2 was not searched: srun: error: no"}},
		"the search is blind": {change("held.1", "process: 6 qemu\n", ""), map[string]string{
			"leftovers": "failed: node 2: the search found nothing while VMs ran there, so it proves nothing"}},
		"a node lacks something": {func(e Evidence) {
			e.Outcomes[jobNodes].Files["check.1"] = `[
{"name": "KVM", "status": "error", "seen": "/dev/kvm is closed"}]`
		}, map[string]string{"preflight": "failed: node 2: KVM: /dev/kvm is closed"}},
		"a node says nothing": {func(e Evidence) {
			e.Outcomes[jobNodes].Files["check.1"] = ""
			e.Outcomes[jobNodes].Files["check-errors.1"] = "slurmv: not found\n"
		}, map[string]string{"preflight": "failed: node 2: slurmv check has said nothing: slurmv: not found"}},
		"no such image": {func(e Evidence) {
			e.set(jobVMs, func(o *Outcome) { *o = Outcome{Refused: "sbatch refuses the job: none is not in the site's catalogue"} })
			for _, job := range []string{jobCancel, jobLimit, jobLeft} {
				delete(e.Outcomes, job)
			}
		}, map[string]string{
			"start": "failed: sbatch refuses the job: none is not in the site's catalogue", "loss": "skipped: the VMs did not start",
			"cancel": "skipped: the VMs did not start", "time limit": "skipped: the VMs did not start", "leftovers": "skipped: no job with VMs had nodes"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e := good()
			tt.change(e)
			p := e.Judge()
			got := results(p)
			for step, want := range tt.want {
				if !strings.HasPrefix(got[step], want) {
					t.Errorf("%s: %q, want %q", step, got[step], want)
				}
			}
			if tt.want == nil && len(got) > 0 {
				t.Errorf("steps have not passed: %v", got)
			}
			if p.Passed != (tt.want == nil) {
				t.Errorf("passed: %v", p.Passed)
			}
		})
	}
}

func TestStepsThatAreLeftOut(t *testing.T) {
	e := good()
	e.Request.SRIOV, e.Request.IVShmem, e.Request.HugePages, e.Request.Quick = "", 0, "", true
	delete(e.Outcomes, jobLimit)
	want := map[string]string{
		"virtual functions": "skipped: not asked for; --sriov=1 does",
		"shared memory":     "skipped: not asked for; --ivshmem=1 does",
		"huge pages":        "skipped: not asked for; --vm-hugepages=2M does",
		"time limit":        "skipped: --quick leaves it out: Slurm's shortest limit is a minute",
	}
	p := e.Judge()
	if diff := cmp.Diff(want, results(p)); diff != "" || !p.Passed {
		t.Errorf("steps differ (-want +got), passed %v:\n%s", p.Passed, diff)
	}
}

func TestRootsOwnChecksCount(t *testing.T) {
	e := good()
	e.Own = []check.Result{{Name: "networks", Status: check.Error, Seen: "no VXLAN"}}
	if got, want := results(e.Judge())["preflight"], "failed: to root on this host: networks: no VXLAN"; got != want {
		t.Errorf("preflight %q, want %q", got, want)
	}
}

func TestPossible(t *testing.T) {
	noQEMU := []check.Result{{Name: "QEMU's devices", Status: check.Warning, Seen: "/usr/bin/qemu has no IVShmem devices: jobs with --ivshmem fail here"}}
	noVFs := []check.Result{{Name: "SR-IOV", Status: check.Skipped, Seen: "no network device here has it, and the configuration has no [vf.software]: --sriov is refused on this node"}}
	tests := map[string]struct {
		asked   Request
		checks  [][]check.Result
		want    Request
		without []string
	}{
		"a device, if QEMU has it":      {Request{VMs: 2, IVShmem: -1}, [][]check.Result{nil, nil}, Request{VMs: 2, IVShmem: 1}, nil},
		"none, if a QEMU has not":       {Request{VMs: 2, IVShmem: -1}, [][]check.Result{nil, noQEMU}, Request{VMs: 2}, []string{stepShare}},
		"what was asked for is tried":   {Request{VMs: 2, IVShmem: 2}, [][]check.Result{noQEMU}, Request{VMs: 2, IVShmem: 2}, nil},
		"one VM shares with nobody":     {Request{VMs: 1, IVShmem: 2}, [][]check.Result{nil}, Request{VMs: 1}, []string{stepShare}},
		"VFs":                           {Request{SRIOV: "1"}, [][]check.Result{nil}, Request{SRIOV: "1"}, nil},
		"no VFs, if a node has none":    {Request{SRIOV: "1"}, [][]check.Result{nil, noVFs}, Request{}, []string{stepVFs}},
		"nobody asked for what is none": {Request{}, [][]check.Result{noVFs}, Request{}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, without := tt.asked.Possible(tt.checks)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("request differs (-want +got):\n%s", diff)
			}
			for _, step := range tt.without {
				if without[step] == "" {
					t.Errorf("%s is not left out", step)
				}
			}
			if len(without) != len(tt.without) {
				t.Errorf("left out: %v", without)
			}
		})
	}
}
