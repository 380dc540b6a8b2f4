//go:build cluster

package test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// warmShape is a shape of VM that no other test has, so that templates of it are these
// tests' own.
const warmShape = " --vcpu-per-vm=1 --memory-per-vm=416M --time=90 "

// ownImage puts a copy of the image that VMs have by default where u alone can read it.
func ownImage(t *testing.T, u user) string {
	t.Helper()
	image := u.must(t, "mktemp ~/image-XXXXXX.qcow2")
	t.Cleanup(func() {
		u.run(t, "rm -f "+image)
		for _, node := range []string{"n1", "n2"} {
			dropTemplates(t, image, node)
		}
	})
	root.must(t, "cat $(sed -n '/catalogue.demo/,$s/^path = \"\\(.*\\)\"$/\\1/p' "+clusterDir()+"/etc/slurm-v/slurmv.toml) > "+image)
	return image
}

func clusterDir() string {
	if dir := os.Getenv("SLURMV_CLUSTER_DIR"); dir != "" {
		return dir
	}
	return "/var/lib/slurmv-cluster"
}

// reason is what a job's agents have said about how its VMs started.
func (j *job) reason() string {
	j.t.Helper()
	return j.user.run(j.t, "cat "+j.dir+"/slurmv-"+j.id+"/*/agent.log").stdout
}

// askWho makes a guest print, in one line, all that must be its own.
const askWho = `
sleep 1
set -- $(hostname) $(cat /etc/machine-id) $(cat /proc/sys/kernel/random/boot_id) $(cat /sys/class/net/e*/address | sort | head -1)
set -- "$@" $(ip -4 -o addr show scope global | awk '{print $4}' | grep ^172.30) $(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
echo "WHO $* $(md5sum < /etc/ssh/ssh_host_ed25519_key.pub | cut -c1-32)"`

// VMs from one template are machines of their own, on the network, with mounts, shared
// memory, virtual functions and MPI like any other; and only their owner gets VMs from
// his template.
func TestWarmClonesAreDifferentMachines(t *testing.T) {
	t.Parallel()
	image := ownImage(t, alice)
	j := alice.submit(t, "--nodes=2 --vm-per-node=2 --ivshmem=1:1M --vm-start=warm --vm-image="+image+warmShape, `
until [ -e who ]; do sleep 0.3; done
slurm-v-run -Q -n 4 sh ./who
slurm-v-run -Q -n 1 sh -c 'for vm in 0 1 2 3; do ping -c 1 -w 60 vm$vm > /dev/null && echo vm$vm answers; done; ls -l /dev/slurmv/ivshmem0'
`+hello(t, alice, 4))
	alice.writeFile(t, j.dir+"/who", askWho)
	out := j.completes()
	checkHello(t, out, 4)
	contains(t, out, "vm0 answers", "vm1 answers", "vm2 answers", "vm3 answers", "ivshmem0")
	checkUnlike(t, out, 4)
	if why := j.reason(); strings.Count(why, "VMs are restored") != 2 {
		t.Errorf("the VMs were not restored:\n%s", why)
	}

	withVFs := alice.submit(t, "--nodes=1 --nodelist=n1 --vm-per-node=2 --sriov=2 --vm-start=warm --vm-image="+image+warmShape,
		"slurm-v-run -Q -n 1 sh -c 'ping -c 2 -w 60 vm1-vf0 > /dev/null && ping -c 2 -w 60 vm1-vf1 > /dev/null && echo VFs answer'")
	contains(t, withVFs.completes(), "VFs answer")

	alice.must(t, "chmod 644 "+image+" && chmod a+x ~")
	other := bob.submit(t, "--nodes=1 --nodelist=n1 --vm-per-node=1 --vm-start=auto --vm-image="+image+warmShape, "slurm-v-run -Q hostname")
	contains(t, other.completes(), "vm0")
	contains(t, other.reason(), "VMs are booted, not restored", "no template")
	dir := templatesOf(t, image)[0]
	for _, file := range []string{"saved", "disk.qcow2", "template.json", "seed.iso"} {
		root.must(t, "test -s "+dir+"/"+file, "--node", "n1") // it is there
		if o := bob.run(t, "cat "+dir+"/"+file, "--node", "n1"); o.code == 0 || !strings.Contains(o.stderr, "Permission denied") {
			t.Errorf("bob reads %s of alice's template", file)
		}
	}
}

// templatesOf returns the directories of alice's templates of an image on n1. Beside them
// may be drafts, and templates of other tests.
func templatesOf(t *testing.T, image string) []string {
	t.Helper()
	return strings.Fields(root.must(t, "dirname $(grep -l "+image+" $SLURMV_STATE_DIR/templates/$(id -u alice)/*/template.json)", "--node", "n1"))
}

// checkUnlike checks that n VMs have nothing in common that must be a machine's own.
func checkUnlike(t *testing.T, out string, n int) {
	t.Helper()
	names := []string{"host name", "machine id", "boot id", "MAC address", "address", "random numbers", "host key"}
	seen := make([][]string, len(names))
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) == len(names)+1 && fields[0] == "WHO" {
			for i, value := range fields[1:] {
				seen[i] = append(seen[i], value)
			}
		}
	}
	for i, values := range seen {
		slices.Sort(values)
		if got := len(slices.Compact(values)); got != n {
			t.Errorf("%d VMs have %d different ones of %s: %v", n, got, names[i], values)
		}
	}
}

// A user may start VMs from a template or not, and a template that is no good, or not
// there, is no reason not to have them.
func TestWarmFallsBack(t *testing.T) {
	t.Parallel()
	image := ownImage(t, alice)
	options := "--nodes=1 --nodelist=n1 --vm-per-node=1 --vm-image=" + image + warmShape
	start := func(how string) string {
		t.Helper()
		j := alice.submit(t, options+how, "slurm-v-run -Q hostname")
		contains(t, j.completes(), "vm0")
		return j.reason()
	}
	boots := func(how string) string {
		t.Helper()
		j := alice.submit(t, options+how, "slurm-v-run sleep 1000")
		j.awaitOutput("boot")
		alice.must(t, "scancel "+j.id)
		j.ends("CANCELLED", "")
		return j.reason()
	}
	contains(t, boots(" --vm-start=auto"), "VMs are booted, not restored", "no template of the image")
	contains(t, start(" --vm-start=warm"), "VMs are restored")
	contains(t, start(" --vm-start=auto"), "VMs are restored")
	if why := boots(" --vm-start=cold"); strings.Contains(why, "restored") {
		t.Errorf("--vm-start=cold looked for a template:\n%s", why)
	}
	contains(t, boots(" --vm-start=auto --memory-per-vm=400M"), "not restored", "it has 416 MiB of memory, and not 400")
	contains(t, boots(" --vm-start=auto --vm-mount=/usr/share:/a,/usr/share:/b,/usr/share:/c,/usr/share:/d"), "5 mounts")

	refused := alice.run(t, "sbatch "+options+" --vm-start=warm --vm-user-data=/etc/hostname --wrap=true")
	contains(t, refused.stderr, "--vm-start", "--vm-user-data")

	for _, dir := range templatesOf(t, image) {
		root.must(t, "truncate -s 200000 "+dir+"/saved", "--node", "n1")
	}
	contains(t, start(" --vm-start=auto"), "VM is booted, not restored")
	contains(t, boots(" --vm-start=auto"), "VMs are booted, not restored") // it is not tried twice
	contains(t, start(" --vm-start=warm"), "VMs are restored")

	alice.must(t, "touch "+image)
	contains(t, boots(" --vm-start=auto"), "the image has changed since")
}

// What root has made of an image of the catalogue is for all users, each of whom gets a
// copy; a user makes one of his own in his job.
func TestTemplatesByCommand(t *testing.T) {
	t.Parallel()
	const size = " --vcpu-per-vm 1 --memory-per-vm 352M"
	made := root.must(t, "slurmv image warm -N n1 --vm-image demo"+size, "--node", "n1")
	contains(t, made, "/templates/site/")
	contains(t, root.must(t, "slurmv image templates -N n1", "--node", "n1"), "site", "352M")
	for _, u := range []user{alice, bob} {
		j := u.submit(t, "--nodes=1 --nodelist=n1 --vm-per-node=1 --time=90 --vm-image=demo"+size, "slurm-v-run -Q cat /etc/machine-id; slurm-v-run -Q hostname")
		contains(t, j.completes(), "vm0")
		contains(t, j.reason(), "VMs are restored", "/templates/"+u.must(t, "id -u")+"/")
	}
	root.must(t, "slurmv image drop -N n1 $(slurmv image templates -N n1 | grep 352M | cut -d' ' -f1)", "--node", "n1")
	if left := root.must(t, "slurmv image templates -N n1", "--node", "n1"); strings.Contains(left, "352M") {
		t.Errorf("left:\n%s", left)
	}

	image := ownImage(t, alice)
	o := alice.run(t, "cd ~ && salloc --nodes=1 --nodelist=n2 --vm-per-node=1 --time=90 --vm-image="+image+size+" slurmv image warm")
	if o.code != 0 {
		t.Errorf("exit status %d\n%s", o.code, o.stderr)
	}
	contains(t, root.must(t, "slurmv image templates -N n2", "--node", "n2"), "alice", image)
}

// The agent is killed while it makes a template. Nothing of it is left, and nobody ever
// gets VMs from half of one.
func TestCrashWhileATemplateIsMade(t *testing.T) {
	t.Parallel()
	image := ownImage(t, bob) // no other test makes a template for bob
	options := "--nodes=1 --nodelist=n2 --vm-per-node=1 --vm-start=warm --vm-image=" + image + warmShape
	j := bob.submit(t, options, "slurm-v-run hostname")
	drafts := "ls -d $SLURMV_STATE_DIR/templates/$(id -u bob)/*.draft 2>/dev/null"
	j.eventually("begins a template", func() bool { return root.run(t, drafts, "--node", "n2").stdout != "" })
	root.must(t, killAgent(j.id), "--node", "n2")
	j.await("FAILED", "CANCELLED", "NODE_FAIL")
	j.finish()
	if left := root.run(t, drafts, "--node", "n2").stdout; left != "" {
		t.Errorf("left: %s", left)
	}
	next := bob.submit(t, options, "slurm-v-run -Q hostname")
	contains(t, next.completes(), "vm0")
}

// The clocks of VMs that were restored later than they were saved are right.
func TestWarmClocks(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, "--nodes=1 --vm-per-node=2 --vm-start=warm"+warmShape, `
for i in 1 2 3 4 5 6; do
	date +%s.%N; slurm-v-run -Q -n 2 date +%s.%N; date +%s.%N; echo
done`)
	for i, vms := range clockErrors(t, j.completes()) {
		if vms > 0.1 {
			t.Errorf("the clock of a VM is at least %.3f s off in look %d", vms, i)
		}
	}
}

// clockErrors is how far guests' times are outside of the host's before and after, look by
// look.
func clockErrors(t *testing.T, out string) (worst []float64) {
	t.Helper()
	for look := range strings.SplitSeq(strings.TrimSpace(out), "\n\n") {
		var times []float64
		for _, word := range strings.Fields(look) {
			at, err := strconv.ParseFloat(word, 64)
			if err != nil {
				t.Fatalf("%q: %v", filepath.Base(word), err)
			}
			times = append(times, at)
		}
		before, after, off := times[0], times[len(times)-1], 0.0
		for _, at := range times[1 : len(times)-1] {
			off = math.Max(off, math.Max(before-at, at-after))
		}
		worst = append(worst, off)
	}
	return worst
}
