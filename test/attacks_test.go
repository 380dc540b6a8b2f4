//go:build cluster

package test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/config"
)

// What a user of a node can try against other users and against root. Each test says
// what the attacker got; that no node is drained is looked at when a job is finished.

// attacker is the program that attacks, where every user of the cluster can run it.
func attacker(t *testing.T) string {
	t.Helper()
	dir := root.must(t, "d=$(mktemp -d ~alice/../attacker-XXXXXX) && chmod 755 $d && realpath $d")
	t.Cleanup(func() { os.RemoveAll(dir) })
	output(t, "env", "CGO_ENABLED=0", "go", "build", "-o", dir+"/attacker", "./attacker")
	return dir + "/attacker"
}

// An attack goes on in the background until the test ends.
type attack struct{ said string } // its first line

// attack starts an attack on a node as u and waits for its first words.
func (u user) attack(t *testing.T, node, command string) attack {
	t.Helper()
	c := u.command(context.Background(), "exec "+command, "--node", node)
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); _ = c.Process.Kill(); _ = c.Wait() })
	said, _ := bufio.NewReader(out).ReadString('\n')
	t.Logf("%s on %s: %s\n%s", u, node, command, said)
	return attack{strings.TrimSpace(said)}
}

// where returns the node that a running job of one node is on.
func (j *job) where() string {
	j.t.Helper()
	return field(j.user.must(j.t, "scontrol show job "+j.id), "NodeList")
}

// holding is a job with one VM whose program runs until the job is cancelled.
func (u user) holding(t *testing.T, options string) *job {
	t.Helper()
	j := u.submit(t, small+" "+options, "slurm-v-run -Q sh -c 'echo running; sleep 1000'")
	j.awaitOutput("running")
	return j
}

// What root would read in procfs for a user stays with root.
func TestAttackReadsFilesOfTheKernel(t *testing.T) {
	t.Parallel()
	honest := alice.must(t, "f=$(mktemp ~/user-data-XXXXXX) && echo '#cloud-config' > $f && echo $f")
	defer alice.run(t, "rm -f "+honest)
	ok := alice.submit(t, small+" --vm-user-data="+honest, "slurm-v-run -Q hostname")
	contains(t, ok.completes(), "vm0")
	for _, path := range []string{"/proc/self/maps", "/proc/1/maps"} {
		j := alice.submit(t, small+" --vm-user-data="+path, "slurm-v-run -Q hostname")
		out := j.ends("FAILED", "1:0")
		t.Log(out)
		if strings.Contains(out, "vm0\n") || !strings.Contains(out, "user data "+path+" is") {
			t.Errorf("%s was read", path)
		}
	}
}

// A user's own sbatch may say anything in the place of what the plugin asks for. It gets
// a refusal, which costs slurmctld no time that others would wait for.
func TestAttackOnTheController(t *testing.T) {
	t.Parallel()
	dir := bob.must(t, "mktemp -d ~/own-XXXXXX")
	defer bob.run(t, "rm -rf "+dir)
	output(t, "gcc", "-shared", "-fPIC", "-o", dir+"/request.so", "attacker/request.c")
	bob.must(t, `cd `+dir+` && echo required $PWD/request.so > plugstack.conf && sed "s!^PlugStackConfig=.*!PlugStackConfig=$PWD/plugstack.conf!" $SLURM_CONF > slurm.conf
for f in $(dirname $SLURM_CONF)/*.conf; do [ -e $(basename $f) ] || ln -s $f . ; done`)
	submit := func(text string, times int) outcome {
		return bob.run(t, fmt.Sprintf("SLURM_CONF=%s/slurm.conf ATTACK_REQUEST='%s' ATTACK_TIMES=%d sbatch --parsable --output=/dev/null --begin=now+1hour --nodes=1 --wrap=true", dir, text, times))
	}
	honest := submit("cpus:1,mem:100", 1)
	if honest.code != 0 {
		t.Fatalf("an honest request is refused: %s", honest.stderr)
	}
	defer bob.run(t, "scancel "+honest.stdout)
	for text, times := range map[string]int{"a": 100_000, "9": 100_000, "cpus:1,": 20_000, "cpus:1,mem:" + strings.Repeat("9", 400): 1, "cpus:1,mem:1,mem:2": 1} {
		began, computed := time.Now(), slurmctldComputed(t)
		done := make(chan outcome, 1)
		go func() { done <- submit(text, times) }()
		longest := time.Duration(0)
		for waiting := true; waiting; {
			longest = max(longest, alice.submitsIn(t))
			select {
			case o := <-done:
				waiting = false
				t.Logf("%d x %.20q: %d after %v: %s; alice's sbatch took %v at most", times, text, o.code, time.Since(began), o.stderr, longest)
				if o.code == 0 {
					bob.run(t, "scancel "+o.stdout)
					t.Error("the job was accepted")
				}
			default:
			}
		}
		// How long alice waits also depends on the disk, to which slurmctld writes each job. The
		// longest of these texts once cost slurmctld half a minute of computing.
		if cost := slurmctldComputed(t) - computed; cost > 3*time.Second {
			t.Errorf("slurmctld computed for %v", cost)
		}
	}
}

// slurmctldComputed is how long slurmctld has computed so far.
func slurmctldComputed(t *testing.T) time.Duration {
	t.Helper()
	ticks := root.must(t, `sed 's/.*) //' /proc/$(cat /run/slurm/slurmctld.pid)/stat | awk -v hz=$(getconf CLK_TCK) '{print int(($12 + $13) * 1000 / hz)}'`)
	millis, err := strconv.Atoi(ticks)
	if err != nil || millis == 0 {
		t.Fatalf("slurmctld has computed for %q ms: %v", ticks, err)
	}
	return time.Duration(millis) * time.Millisecond
}

// submitsIn is how long an sbatch of the user's takes.
func (u user) submitsIn(t *testing.T) time.Duration {
	t.Helper()
	took := u.must(t, `before=${EPOCHREALTIME/.}
job=$(sbatch --parsable --output=/dev/null --hold --nodes=1 --wrap=true) && echo $((${EPOCHREALTIME/.} - before)) && scancel $job`)
	micros, err := strconv.Atoi(took)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(micros) * time.Microsecond
}

// On a network of the site, the port of a VM is the site's. Who has the VM's tap in hand
// can change nothing beside it.
func TestAttackOnABridgeOfTheSite(t *testing.T) {
	t.Parallel()
	probe := attacker(t)
	const pings = `slurm-v-run -Q sh -c 'echo running; for i in $(seq 600); do ping -c 1 -W 5 10.78.0.1 >/dev/null && echo gateway answers; sleep 1; done'`
	neighbour := bob.submit(t, small+" --vm-network=site --nodelist=n1", pings)
	neighbour.awaitOutput("gateway answers")
	j := alice.holding(t, "--vm-network=site --nodelist=n1")
	taps := root.must(t, "ip -o link show | sed -n 's/^[0-9]*: \\(svt[^:@]*\\).*/\\1/p'", "--node", "n1")
	if taps == "" {
		t.Fatal("there are no taps on n1")
	}
	opened := alice.run(t, probe+" open-tap "+strings.Join(strings.Fields(taps), " "), "--node", "n1")
	t.Log(opened.stdout)
	if refused := strings.Count(opened.stdout, "operation not permitted"); refused != len(strings.Fields(taps)) {
		t.Errorf("a user may open taps: %d of %d are refused", refused, len(strings.Fields(taps)))
	}
	gateway := strings.TrimSpace(output(t, cluster, "run", "--user", "root", "--node", "n1", "--", "bash", "-c",
		"bridge fdb show br br-site | awk '/ dev sitep / && !/permanent/ { print $1 }' | head -1"))
	mac := root.must(t, "ip -o link show br-site | sed 's/.*ether \\([^ ]*\\).*/\\1/'", "--node", "n1")
	t.Logf("a MAC behind the site's cable: %s; that of the bridge: %s", gateway, mac)
	stolen := alice.run(t, probe+" steal-taps "+gateway, "--node", "n1")
	t.Log(stolen.stdout)
	if !strings.Contains(stolen.stdout, "got /proc/") {
		t.Log("no tap could be taken from QEMU, so the rest shows nothing")
	}
	for _, bridge := range strings.Fields(root.must(t, "ls /sys/class/net | grep '^br-'", "--node", "n1")) {
		if local := root.must(t, "bridge fdb show br "+bridge+" | grep -i '^"+gateway+" .*permanent' || true", "--node", "n1"); local != "" {
			t.Errorf("the gateway's address is the node's now: %s", local)
		}
	}
	before := strings.Count(neighbour.output(), "gateway answers")
	neighbour.eventually("reaches the gateway again", func() bool { return strings.Count(neighbour.output(), "gateway answers") > before+2 })
	if now := root.must(t, "ip -o link show br-site | sed 's/.*ether \\([^ ]*\\).*/\\1/'", "--node", "n1"); now != mac {
		t.Errorf("the bridge has the address %s now, and had %s", now, mac)
	}
	alice.must(t, "scancel "+j.id)
	bob.must(t, "scancel "+neighbour.id)
}

// Directories that a user can write are removed whatever the user does in them.
func TestAttackOnReclaim(t *testing.T) {
	t.Parallel()
	probe := attacker(t)
	j := alice.holding(t, "")
	node := j.where()
	state := alice.must(t, "echo $SLURMV_STATE_DIR", "--node", node)
	mine := fmt.Sprintf("%s/jobs/%s.0/vm0", state, j.id)
	o := alice.run(t, probe+" deep "+mine+" 20000; mkdir "+mine+"/busy", "--node", node)
	contains(t, o.stdout, "got 20000 levels")
	if busy := alice.attack(t, node, probe+" busy "+mine+"/busy"); busy.said != "got in" {
		t.Fatalf("the attack did not start: %q", busy.said)
	}
	alice.must(t, "scancel "+j.id)
	j.await("CANCELLED")
	checkLeaks(t, j.id)
	if idle := poll(func() bool { return !strings.Contains(root.must(t, "sinfo -h -n "+node+" -o %T"), "comp") }); !idle {
		t.Errorf("%s stays COMPLETING", node)
	}
	t.Log(root.must(t, "slurmv clean --node-name "+node, "--node", node))
}

// Strangers get no further than to the name of an agent's socket.
func TestAttackOnTheAgentsSocket(t *testing.T) {
	t.Parallel()
	probe := attacker(t)
	j := alice.submit(t, small, "slurm-v-run -Q echo running\nuntil [ -e go ]; do sleep 0.3; done\nslurm-v-run -Q echo still there")
	j.awaitOutput("running")
	socket := fmt.Sprintf("/run/slurmv/%s/jobs/%s.0/agent.sock", j.where(), j.id)
	mine := alice.attack(t, j.where(), probe+" flood "+socket+" 1")
	if mine.said != "got 1 connections" {
		t.Fatalf("alice cannot connect to her own: %q", mine.said)
	}
	strangers := bob.attack(t, j.where(), probe+" flood "+socket+" 20000")
	if strangers.said != "got 0 connections" {
		t.Errorf("bob: %s", strangers.said)
	}
	alice.must(t, "touch "+j.dir+"/go")
	contains(t, j.completes(), "still there")
}

// The port of the VMs' network is nobody's to take.
func TestAttackOnThePortOfVXLAN(t *testing.T) {
	t.Parallel()
	probe := attacker(t)
	if free := bob.attack(t, "n1", probe+" bind-udp 40789"); free.said != "got port 40789" {
		t.Fatalf("bob cannot have any port: %q", free.said)
	}
	port := strconv.Itoa(config.Default().Network["default"].VXLANPort)
	if taken := bob.attack(t, "n1", probe+" bind-udp "+port); !strings.HasPrefix(taken.said, "got nothing:") {
		t.Errorf("bob: %s", taken.said)
	}
	j := alice.submit(t, "--nodes=2 --vm-per-node=1 --memory-per-vm=384M --time=90", "slurm-v-run -Q -n 2 sh -c 'ping -c 1 -w 30 vm0 >/dev/null && ping -c 1 -w 30 vm1 >/dev/null && echo both answer'")
	if out := j.completes(); strings.Count(out, "both answer") != 2 {
		t.Errorf("the VMs do not reach each other:\n%s", out)
	}
}

// What anybody puts into /dev/shm keeps nothing from being cleaned up.
func TestAttackOnClean(t *testing.T) {
	t.Parallel()
	probe := attacker(t)
	j := alice.holding(t, "--ivshmem=1")
	node := j.where()
	region := filepath.Base(root.must(t, "ls /dev/shm/slurmv-*-"+j.id+".0-0-*", "--node", node))
	place := strings.Split(region, "-")[1]
	// An orphan's job has ended; this one never was.
	junk := fmt.Sprintf("/dev/shm/slurmv-%s-60000000.0-0-%s", place, strings.Repeat("a", 26))
	if leased := bob.attack(t, node, probe+" lease "+junk); leased.said != "got a lease" {
		t.Fatalf("the attack did not start: %q", leased.said)
	}
	defer bob.run(t, "rm -f "+junk, "--node", node)
	orphan := strings.Replace(junk, "aaaa", "bbbb", 1)
	root.must(t, "umask 077; echo x > "+orphan, "--node", node)
	o := root.run(t, "slurmv clean --node-name "+node+"; echo status $?; ls "+orphan, "--node", node)
	t.Log(o.stdout, o.stderr)
	if !strings.Contains(o.stdout, "status 0") {
		t.Error("slurmv clean fails")
	}
	if strings.Contains(o.stdout, orphan) {
		t.Error("an orphan of root's is still there")
	}
	alice.must(t, "scancel "+j.id)
}

// Nobody knows the name of a keeper before the keeper has it.
func TestAttackOnTheNamesOfKeepers(t *testing.T) {
	t.Parallel()
	probe := attacker(t)
	last, err := strconv.Atoi(alice.submit(t, "--nodes=1 --time=1", "true").id)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for id := last + 1; id <= last+40; id++ {
		names = append(names, fmt.Sprintf("slurmv/6001/%d.0", id))
	}
	for _, node := range []string{"n1", "n2"} {
		if held := bob.attack(t, node, probe+" hold-name "+strings.Join(names, " ")); held.said != "got 40 names" {
			t.Fatalf("the attack did not start: %q", held.said)
		}
	}
	contains(t, alice.submit(t, small, "slurm-v-run -Q hostname").completes(), "vm0")
}

// Who is root in a guest plants a link where the logs are to go.
func TestAttackByALinkInPlaceOfLogs(t *testing.T) {
	t.Parallel()
	elsewhere := alice.must(t, "mktemp -d ~/elsewhere-XXXXXX")
	defer alice.run(t, "rm -rf "+elsewhere)
	j := alice.submit(t, small, "ln -s "+elsewhere+" slurmv-$SLURM_JOB_ID; slurm-v-run -Q hostname")
	contains(t, j.completes(), "vm0")
	checkLeaks(t, j.id)
	if got := alice.must(t, "find "+elsewhere+" -type f"); got != "" {
		t.Errorf("logs were written to %s", got)
	}
	honest := alice.submit(t, small, "slurm-v-run -Q hostname")
	honest.completes()
	checkLeaks(t, honest.id)
	contains(t, alice.must(t, "ls "+honest.dir+"/slurmv-"+honest.id+"/*"), "agent.log", "vm0.console")
}
