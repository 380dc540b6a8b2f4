//go:build cluster

package test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// sharing is a job of two VMs with a device of shared memory, on a certain node.
const sharing = "--nodes=1 --nodelist=n1 --vm-per-node=2 --memory-per-vm=384M --ivshmem=1:16M --time=90"

// shareMemory submits such a job, which runs the script in both VMs. In its directory
// is the program shm.
func (u user) shareMemory(t *testing.T, script string) *job {
	t.Helper()
	j := u.submit(t, sharing, "until [ -e shm ]; do sleep 0.2; done\nslurm-v-run -n 2 bash ./guest")
	u.writeFile(t, j.dir+"/guest", script)
	output(t, "env", "CGO_ENABLED=0", "go", "build", "-o", j.dir+"/shm.new", "./shm")
	root.must(t, "mv "+j.dir+"/shm.new "+j.dir+"/shm")
	return j
}

// reports waits until the job's guests have written a line and returns it.
func (j *job) reports(file string) string {
	j.t.Helper()
	j.eventually("writes "+file, func() bool { return strings.Contains(j.read(file), "\n") })
	return j.file(file)
}

// The VMs of a job on a node have the same memory, all of it and nothing beyond; what both add to
// a number in it at the same time is all in its sum; and
// a job of another user, on the same node at the same time or later, has none of it.
func TestSharedMemoryIsTheJobsAlone(t *testing.T) {
	t.Parallel()
	const writer = pauses + `
if [ $(hostname) = vm0 ]; then
	./shm count ivshmem0 0 > zero.new; ./shm beyond ivshmem0 > beyond.new; ./shm fill ivshmem0 0xa5; touch filled
	mv beyond.new beyond; mv zero.new zero
	until [ -e ready ]; do pause; done
	./shm fill ivshmem0 0; touch go
	./shm add ivshmem0 20000000; until [ -e added ]; do pause; done
	./shm sum ivshmem0 0 > sum.new; mv sum.new sum; ./shm fill ivshmem0 0xa5; touch restored
else
	until [ -e filled ]; do pause; done
	./shm count ivshmem0 0xa5 > seen.new; mv seen.new seen
	touch ready; until [ -e go ]; do pause; done
	./shm add ivshmem0 20000000; touch added
fi
sleep 1000`
	const reader = `
if [ $(hostname) = vm0 ]; then
	./shm count ivshmem0 0 > zero.new; mv zero.new zero; sleep 1000
fi`
	first := alice.shareMemory(t, writer)
	if got := first.reports("zero"); got != "all" {
		t.Errorf("of the first job's memory %s is zero", got)
	}
	if got := first.reports("seen"); got != "all" {
		t.Errorf("of what one VM wrote the other sees %s", got)
	}
	if got := first.reports("sum"); got != "40000000" {
		t.Errorf("two VMs have added 20 million each, and the sum is %s", got)
	}
	first.eventually("has filled it again", func() bool { return first.exists("restored") })
	beyond := first.reports("beyond")
	refused := regexp.MustCompile(`(?m)^(one page more|the page behind|half of it behind): (invalid argument|bad address)$`)
	if n := len(refused.FindAllString(beyond, -1)); n != 3 || !strings.Contains(beyond, "true bytes") {
		t.Errorf("mapping beyond the device:\n%s", beyond)
	}

	second := bob.shareMemory(t, reader)
	if got := second.reports("zero"); got != "all" {
		t.Errorf("of the memory of a job beside %s is zero", got)
	}
	// On the node, too, it is the owner's alone.
	const files = `ls /dev/shm/slurmv-*-%s.*-*`
	mine := strings.ReplaceAll(files, "%s", first.id)
	if n := alice.must(t, mine+" | wc -l", "--node", "n1"); n != "1" {
		t.Errorf("the first job has %s files in /dev/shm", n)
	}
	opened := bob.run(t, `for f in $(`+mine+`); do head -c 1 "$f" && echo read; : >> "$f" && echo written; rm -f "$f" && echo removed; done`, "--node", "n1")
	if opened.stdout != "" || strings.Count(opened.stderr, "Permission denied") < 2 {
		t.Errorf("another user's attempts: %s\n%s", opened.stdout, opened.stderr)
	}
	if got := alice.must(t, `for f in $(`+mine+`); do tail -c 1 "$f"; done | od -An -tx1`, "--node", "n1"); got != "a5" {
		t.Errorf("the first job's memory has %q now", got)
	}

	alice.must(t, "scancel "+first.id)
	first.ends("CANCELLED", "")
	third := bob.shareMemory(t, reader)
	if got := third.reports("zero"); got != "all" {
		t.Errorf("of the memory of a later job %s is zero", got)
	}
}

const (
	hugePages = "/sys/kernel/mm/hugepages/hugepages-2048kB/"
	freePages = "cat " + hugePages + "free_hugepages"
)

// haveHugePages reserves huge pages of 2M until the test ends, so that n are free, and returns how many are. They are the
// machine's, so no other test may run meanwhile.
func haveHugePages(t *testing.T, n int) (free int) {
	t.Helper()
	read := func(name string) int {
		n, err := strconv.Atoi(root.must(t, "cat "+hugePages+name, "--node", "n1"))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	reserved := read("nr_hugepages")
	if lack := n - read("free_hugepages"); lack > 0 {
		reserve := func(pages int) {
			root.must(t, fmt.Sprintf("echo %d > %snr_hugepages", pages, hugePages), "--node", "n1")
		}
		reserve(reserved + lack)
		t.Cleanup(func() { reserve(reserved) })
	}
	if free = read("free_hugepages"); free < n {
		t.Skipf("the kernel reserves no %d huge pages of 2M, but %d", n, free)
	}
	return free
}

// A node that has huge pages free makes a job's memory of them, and has them back
// afterwards.
func TestSharedMemoryOfHugePages(t *testing.T) {
	before := strconv.Itoa(haveHugePages(t, 8))
	j := alice.shareMemory(t, pauses+`
if [ $(hostname) = vm0 ]; then ./shm fill ivshmem0 0xa5; touch filled; else until [ -e filled ]; do pause; done; fi
./shm count ivshmem0 0xa5 > new.$(hostname); mv new.$(hostname) seen.$(hostname)
sleep 1000`)
	for _, vm := range []string{"vm0", "vm1"} {
		if got := j.reports("seen." + vm); got != "all" {
			t.Errorf("of the memory %s sees %s as it was written", vm, got)
		}
	}
	found := root.must(t, "stat -L -c '%U %a %s %o' /dev/shm/slurmv-*-"+j.id+".* && readlink /dev/shm/slurmv-*-"+j.id+".*", "--node", "n1")
	contains(t, found, "alice 600 16777216 2097152\n", "/run/hugepages/slurmv-")
	if o := bob.run(t, "head -c 1 /dev/shm/slurmv-*-"+j.id+".*; rm -f /dev/shm/slurmv-*-"+j.id+".*", "--node", "n1"); o.stdout != "" || strings.Count(o.stderr, "ermi") != 2 {
		t.Errorf("another user's attempts: %q\n%s", o.stdout, o.stderr)
	}
	alice.must(t, "scancel "+j.id)
	j.ends("CANCELLED", "")
	if !poll(func() bool { return root.must(t, freePages, "--node", "n1") == before }) {
		t.Errorf("%s huge pages are free, before %s", root.must(t, freePages, "--node", "n1"), before)
	}
}

// VMs have the huge pages that they ask for, a job that comes at the same time is not promised
// the same ones, and all are there again afterwards.
func TestVMsOfHugePages(t *testing.T) {
	const pages = 96
	before := haveHugePages(t, pages)
	if before >= 2*pages {
		t.Skipf("%d huge pages of 2M are free on this machine: both jobs would have theirs", before)
	}
	options := "--nodes=1 --nodelist=n1 --vm-per-node=1 --vm-mount=none --vm-hugepages=2M --memory-per-vm=192M"
	jobs := []*job{alice.submit(t, options, "slurm-v-run -Q sleep 1000"), bob.submit(t, options, "slurm-v-run -Q sleep 1000")}
	var ended, running *job
	if !poll(func() bool {
		for i, j := range jobs {
			if strings.Contains(j.output(), "of them promised to other jobs") {
				ended, running = j, jobs[1-i]
			}
		}
		return ended != nil
	}) {
		t.Fatalf("no job was refused:\n%s\n%s", jobs[0].output(), jobs[1].output())
	}
	contains(t, ended.output(), "--vm-hugepages=2M: the VMs on node n1 need 96 pages of 2M")
	taken := func(n int) func() bool {
		return func() bool { return root.must(t, freePages, "--node", "n1") == strconv.Itoa(before-n) }
	}
	if !poll(taken(pages)) {
		t.Errorf("%s huge pages are free, before %d", root.must(t, freePages, "--node", "n1"), before)
	}
	root.must(t, "scancel "+running.id)
	if !poll(taken(0)) {
		t.Errorf("%s huge pages are free, before %d", root.must(t, freePages, "--node", "n1"), before)
	}
}

func TestMoreSharedMemoryThanAllowedIsRefused(t *testing.T) {
	t.Parallel()
	for options, want := range map[string]string{
		"--ivshmem=17":      "17 is not allowed",
		"--ivshmem=1:24M":   "24M is not a power of two; use 16M or 32M",
		"--ivshmem=16:8G":   "16 devices of 8G are 128G; a job may have 64G on each node",
		"--ivshmem=0:16M:1": "is not a size",
	} {
		o := alice.run(t, "sbatch --vm-per-node=1 "+options+" --wrap=true")
		if o.code == 0 {
			t.Errorf("%s is accepted", options)
		}
		contains(t, o.stderr, want)
	}
}

// Shared memory is part of what a job asks for, once for a node.
func TestSharedMemoryIsInTheRequest(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, "--nodes=1 --vm-per-node=2 --memory-per-vm=384M --ivshmem=2:64M --begin=now+1hour", "true")
	contains(t, field(alice.must(t, "scontrol show job "+j.id), requested), "mem=1792M")
}

// What slurmv check says of QEMU's devices on a node is what a job with --ivshmem meets there:
// it starts, or it is refused with a sentence. test/matrix runs this with RHEL's QEMU, too.
func TestWhatQEMULacks(t *testing.T) {
	t.Parallel()
	check := root.run(t, "slurmv check --node-name n1", "--node", "n1").stdout
	j := alice.submit(t, small+" --nodelist=n1 --ivshmem=1:1M", "slurm-v-run -n 1 true && echo it runs")
	if !strings.Contains(check, ": jobs with --ivshmem fail here") {
		contains(t, j.completes(), "it runs")
		return
	}
	j.await("FAILED")
	contains(t, j.output(), "--ivshmem: QEMU on this node has no ", "; leave the option out")
	other := alice.submit(t, small+" --nodelist=n1", "slurm-v-run -n 1 true && echo it runs")
	contains(t, other.completes(), "it runs")
}

// Where the site wants that, VMs have the memory as NVDIMMs: those that boot, and those from a template. For the
// guest's kernel it is persistent memory, which it caches like all other. MPI uses it like a PCI device.
func TestSharedMemoryAsNVDIMM(t *testing.T) {
	t.Parallel()
	wantNVDIMMs(t, "n2")
	const options = "--nodes=1 --nodelist=n2 --vm-per-node=2 --memory-per-vm=384M --ivshmem=2:16M --ntasks=2 --time=90"
	neighbours := neighboursOnANode(t)
	for _, start := range []string{"cold", "warm"} {
		out := alice.submit(t, options+" --vm-start="+start, exchange(t, "mpicc")+probe(t)+`
slurm-v-run -Q -n 1 --mpi=none sh -c 'readlink /dev/slurmv/*; stat -L -c "%U %a %F" /dev/slurmv/ivshmem1; grep -c "Persistent Memory" /proc/iomem'
touch nvdimm.go; slurm-v-run -Q -n 2 --mpi=none ./probe nvdimm
slurm-v-run -n 2 --mpi-shm=on ./exchange`).completes()
		contains(t, out, "/dev/dax0.0\n/dev/dax1.0\n", "alice 600 character special file\n2\n", "all signed", throughMemory+"n2 (UCX)", "2 ranks, "+neighbours+" of them neighbours, 0 wrong")
	}
}

// wantNVDIMMs gives a node another configuration until the test ends.
func wantNVDIMMs(t *testing.T, node string) {
	t.Helper()
	file := clusterDir() + "/etc/slurm-v/slurmv.toml"
	root.must(t, `sed 's/^device = .*/device = "nvdimm"/' `+file+` > /run/nvdimm.toml && grep -q nvdimm /run/nvdimm.toml && mount --bind /run/nvdimm.toml `+file, "--node", node)
	t.Cleanup(func() { root.must(t, "umount "+file, "--node", node) })
}
