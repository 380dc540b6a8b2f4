//go:build cluster

package test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// The VMs of two jobs have the same addresses, so no address tells whether a VM of the
// other job answers. Hence all listen to every frame on their card, and all send frames
// that name their job and whom they are for: to everybody, and to the MAC of each VM of
// both jobs. Each must hear the other one of its own job, and never the other job.

// apartScript runs in each VM. CARD chooses the network card, see test/frames.
const apartScript = pauses + `
set -e
job=%[1]s vm=$(hostname) CARD=%[2]s
case $vm in vm0) mate=vm1 ;; vm1) mate=vm0 ;; esac
root() { setpriv --reuid 0 --regid 0 --clear-groups "$@"; }
listen() { root env CARD=$CARD ./frames receive $job/$mate/end > heard.$vm; }
send() { root env CARD=$CARD ./frames send $job/$vm/$1 udp $own $2 %[3]s.$((${vm#vm} + 1)); }
listen & listener=$!
until [ -s heard.$vm ]; do pause; kill -0 $listener; done
own=$(head -1 heard.$vm)
until [ -e targets ]; do pause; done
for target in ff:ff:ff:ff:ff:ff $(cat targets); do send $target $target; done
touch sent.$vm
until [ -e last ]; do pause; done
send end ff:ff:ff:ff:ff:ff
wait $listener`

// A party is a job of two VMs, who listen and send.
type party struct {
	*job
	macs []string // of its VMs
}

// newParty submits one whose VMs have cards with such MACs and addresses.
func newParty(t *testing.T, u user, options, card, subnet string) *party {
	t.Helper()
	j := u.submit(t, options, "until [ -e frames ]; do sleep 0.2; done\nslurm-v-run -n 2 --ntasks-per-node=$((2 / SLURM_NNODES)) bash ./guest")
	u.writeFile(t, j.dir+"/guest", fmt.Sprintf(apartScript, j.id, card, subnet))
	output(t, "env", "CGO_ENABLED=0", "go", "build", "-o", j.dir+"/frames.new", "./frames")
	if err := os.Rename(j.dir+"/frames.new", j.dir+"/frames"); err != nil {
		t.Fatal(err)
	}
	return &party{job: j}
}

func (p *party) awaitFiles(names ...string) {
	p.t.Helper()
	for _, name := range names {
		p.eventually("has "+name, func() bool { return p.exists(name) })
	}
}

// checkApart lets both send, and looks at what each VM has heard when all have. In each
// round a frame of a VM comes after those that it has sent before.
func checkApart(t *testing.T, parties ...*party) {
	t.Helper()
	var all []string
	for _, p := range parties {
		for _, vm := range []string{"vm0", "vm1"} {
			p.macs = append(p.macs, p.reports("heard."+vm))
		}
		all = append(all, p.macs...)
	}
	for _, p := range parties {
		p.user.writeFile(t, p.dir+"/targets.new", strings.Join(all, "\n"))
		p.user.must(t, "mv "+p.dir+"/targets.new "+p.dir+"/targets")
	}
	for _, p := range parties {
		p.awaitFiles("sent.vm0", "sent.vm1")
	}
	for _, p := range parties {
		p.user.must(t, "touch "+p.dir+"/last")
	}
	for _, p := range parties {
		p.completes()
		p.checkHeard(0)
		p.checkHeard(1)
	}
}

// checkHeard checks that a VM heard all that the other one of its job sent to everybody
// and to it, and nothing of another job.
func (p *party) checkHeard(vm int) {
	p.t.Helper()
	heard := strings.Fields(p.file(fmt.Sprintf("heard.vm%d", vm)))[1:]
	for _, to := range []string{"ff:ff:ff:ff:ff:ff", p.macs[vm], "end"} {
		if want := fmt.Sprintf("%s/vm%d/%s", p.id, 1-vm, to); !slices.Contains(heard, want) {
			p.t.Errorf("vm%d of job %s does not hear %s, only %q", vm, p.id, want, heard)
		}
	}
	for _, frame := range heard {
		if !strings.HasPrefix(frame, p.id+"/") {
			p.t.Errorf("vm%d of job %s hears %s, which is another job's", vm, p.id, frame)
		}
	}
}

const apartOptions = oneCPU + " --time=90"

// On the same two nodes, at the same time.
func TestNetworksOfJobsAreApart(t *testing.T) {
	t.Parallel()
	options := apartOptions + " --nodes=2 --vm-per-node=1"
	checkApart(t, newParty(t, alice, options, "02:", "172.30.0"), newParty(t, bob, options, "02:", "172.30.0"))
}

// On the same card of the same node, at the same time.
func TestVFsOfTwoJobsAreApart(t *testing.T) {
	t.Parallel()
	options := apartOptions + " --nodes=1 --nodelist=n1 --vm-per-node=2 --sriov=1:pf=vf0"
	checkApart(t, newParty(t, alice, options, "06:", "172.29.0"), newParty(t, bob, options, "06:", "172.29.0"))
}

// Root of vm0 takes addresses beside those of the nodes and of the site, and knocks. The other VM has a minute
// to answer: its vCPU may have no CPU for seconds. What must be silent is given up after five, and the other VM
// is asked once more afterwards.
const knockScript = pauses + `
root() { ` + asRoot + `"$@"; }
tcp() { timeout $3 bash -c ": < /dev/tcp/$1/$2" 2> /dev/null && echo "$1 answers" || echo "$1 is silent"; }
icmp() { ping -c 1 -w $2 $1 > /dev/null 2>&1 && echo "$1 echoes" || echo "$1 gives no echo"; }
if [ $(hostname) = vm1 ]; then
	perl -MIO::Socket::INET -e '$l = IO::Socket::INET->new(LocalPort => 7777, Listen => 9) or die; close $c while $c = $l->accept' & server=$!
	until [ -e done ]; do pause; done
	kill $server; exit
fi
root ip address add 10.77.0.99/24 dev eth0 && root ip address add 10.78.0.99/24 dev eth0 && echo routes there
until [ "$(tcp vm1 7777 60)" = "vm1 answers" ]; do sleep 0.5; done
icmp vm1 60
tcp 10.77.0.10 6817 5; tcp 10.77.0.11 6818 5; tcp 10.77.0.12 6818 5
icmp 10.78.0.1 5
tcp vm1 7777 60
touch done`

// Nothing but its own VMs answers a guest: not the node, not the site. The same knocks are
// answered where they should be: on a node, and in a VM on the site's network.
func TestGuestReachesNeitherNodeNorSite(t *testing.T) {
	t.Parallel()
	for _, node := range []string{"n1", "n2"} {
		for _, door := range []string{"10.77.0.10/6817", "10.77.0.11/6818", "10.77.0.12/6818"} {
			alice.must(t, "timeout 5 bash -c ': < /dev/tcp/"+door+"'", "--node", node)
		}
	}
	site := alice.submit(t, apartOptions+" --nodes=1 --vm-per-node=1 --vm-network=site", "slurm-v-run -Q ping -c 1 -w 60 10.78.0.1 > /dev/null && echo the site echoes")
	j := alice.submit(t, apartOptions+" --nodes=1 --vm-per-node=2", "until [ -e guest ]; do sleep 0.2; done\nslurm-v-run -Q -n 2 bash ./guest")
	alice.writeFile(t, j.dir+"/guest.new", knockScript)
	alice.must(t, "mv "+j.dir+"/guest.new "+j.dir+"/guest")
	contains(t, site.completes(), "the site echoes")
	want := "routes there\nvm1 echoes\n" +
		"10.77.0.10 is silent\n10.77.0.11 is silent\n10.77.0.12 is silent\n10.78.0.1 gives no echo\nvm1 answers\n"
	if got := j.completes(); got != want {
		t.Errorf("a guest's knocks:\n%s\nwant\n%s", got, want)
	}
}
