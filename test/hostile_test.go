//go:build cluster

package test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// asRoot runs a program as root of a VM. In the default image everybody is root who wants to, as in images that
// users bring: see scripts/guest-image.d/base.
const asRoot = "setpriv --reuid 0 --regid 0 --clear-groups "

// changedImage is the default image with a change of its root file system by debugfs(8).
func changedImage(t *testing.T, change string) string {
	t.Helper()
	dir := root.must(t, "d=$(mktemp -d ~alice/../image-XXXXXX) && chmod 755 $d && realpath $d")
	t.Cleanup(func() { os.RemoveAll(dir) })
	disk := dir + "/disk.raw"
	guest := root.must(t, "realpath $(dirname $(command -v slurm-v-run))/../libexec/slurm-v/slurmv-guest")
	output(t, "qemu-img", "convert", "-O", "raw", output(t, "../scripts/guest-image", "--guest", guest), disk)
	const second = "?offset=67108864" // the second partition; see scripts/guest-image.d/base
	output(t, "debugfs", "-w", "-R", change, disk+second)
	return disk
}

// output runs a program on the machine that the cluster is on.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	c := exec.Command(program, args...)
	var words strings.Builder
	c.Stderr = &words
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", c, err, words.String())
	}
	return strings.TrimSpace(string(out))
}

// A guest that ends by its own will is a loss to its job, and is called so.
func TestGuestTypesPoweroff(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small, "slurm-v-run sh -c 'echo running; "+asRoot+"/sbin/poweroff; sleep 1000'")

	contains(t, j.ends("FAILED", ""), "vm0", "powered itself off")
}

// The VMs of a job listen to all that arrives, as root; the first sends frames
// with a source that is its own, and with others. It has the MACs of the others
// from files, that of another job's VM from the test.
const hostileScript = pauses + `
hears() { until [ -s heard.$1 ]; do pause; done; head -1 heard.$1; }
if [ $(hostname) != vm0 ]; then ` + asRoot + `./frames receive honest > heard.$(hostname); exit; fi
until [ -e go ]; do pause; done
own=$(cat /sys/class/net/eth0/address) neighbour=$(hears vm1) all=ff:ff:ff:ff:ff:ff stranger=$(cat go)
hears vm2 >/dev/null; hears vm3 >/dev/null
send() { ` + asRoot + `./frames send "$@"; }
send mac-of-a-neighbour     udp  $neighbour        $all      172.30.0.1
send mac-of-nobody          udp  02:00:00:01:02:03 $all      172.30.0.1
send address-of-a-neighbour udp  $own              $all      172.30.0.2
send address-of-nobody      udp  $own              $all      10.77.0.11
send address-in-a-vlan      vlan $own              $all      172.30.0.2
send neighbour-in-all       udp  $neighbour        $all      172.30.0.2
send arp-for-a-neighbour    arp  $own              $all      172.30.0.2 $own
send arp-of-another-mac     arp  $own              $all      172.30.0.1 $neighbour
send arp-in-all             arp  $neighbour        $all      172.30.0.2 $neighbour
send honest-to-a-stranger   udp  $own              $stranger 172.30.0.1
send to-a-stranger-by-mac   udp  $stranger         $stranger 172.30.0.2
send to-a-stranger-by-arp   arp  $own              $stranger 172.30.0.2 $own
send honest-arp             arp  $own              $all      172.30.0.1 $own
send honest                 udp  $own              $all      172.30.0.1
echo sent
`

// A second job has VMs on the same nodes, and the same addresses.
const strangerScript = pauses + `
if [ $(hostname) = vm0 ]; then ` + asRoot + `./frames receive honest > heard; exit; fi
until [ -e go ]; do pause; done
` + asRoot + `./frames send honest udp $(cat /sys/class/net/eth0/address) ff:ff:ff:ff:ff:ff 172.30.0.2`

// Root of a guest sends what he likes, and nobody gets what is not his. Frames of a
// VM stay in order, so where the last has arrived no other is on the way.
func TestForgedFramesReachNobody(t *testing.T) {
	t.Parallel()
	submit := func(u user, vms int, script string) *job {
		options := fmt.Sprintf("--nodes=2 --vm-per-node=%d --time=90 ", vms) + oneCPU
		j := u.submit(t, options, "until [ -e frames ]; do sleep 0.2; done\nslurm-v-run -n "+fmt.Sprint(2*vms)+" bash ./guest")
		u.writeFile(t, j.dir+"/guest", script)
		output(t, "env", "CGO_ENABLED=0", "go", "build", "-o", j.dir+"/frames", "./frames")
		return j
	}
	hostile, stranger := submit(alice, 2, hostileScript), submit(bob, 1, strangerScript)
	listening := func() bool { return bob.run(t, "[ -s "+stranger.dir+"/heard ]").code == 0 }
	stranger.eventually("listens", listening)
	alice.writeFile(t, hostile.dir+"/go", strings.Fields(stranger.file("heard"))[0])
	contains(t, hostile.completes(), "sent\n")
	bob.must(t, "touch "+stranger.dir+"/go")
	stranger.completes()

	for _, vm := range []string{"vm1", "vm2", "vm3"} {
		if got := strings.Fields(hostile.file("heard." + vm))[1:]; !slices.Equal(got, []string{"honest-to-a-stranger", "honest-arp", "honest"}) {
			t.Errorf("%s heard %q", vm, got)
		}
	}
	if got := strings.Fields(stranger.file("heard"))[1:]; !slices.Equal(got, []string{"honest"}) {
		t.Errorf("a VM of another job heard %q", got)
	}
}
