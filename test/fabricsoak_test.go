//go:build cluster && soak

package test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	fabricFaults = flag.Int("fabric-faults", 300, "kill or lose something that has to do with jobs' tags so `many` times")
	fabricSeed   = flag.Uint64("fabric-seed", uint64(time.Now().UnixNano()), "the `number` with which the random ones begin")
)

// Whatever is killed or lost while jobs get and lose their VNIs, no VNI is given while a node still has it, and all come
// back. Each job has four of the pool's 32, so that they are soon given again. The cards note which services they had.
func TestFabricFaults(t *testing.T) {
	t.Logf("-fabric-seed %d", *fabricSeed)
	giveCards(t)
	f := &tagFaults{t: t, random: rand.New(rand.NewPCG(*fabricSeed, 0)), library: cardLibrary(t), counts: map[string]int{}}
	f.busy("", "")
	for i := 0; f.happened() < *fabricFaults; i++ {
		f.submit()
		f.strike()
		if i%8 == 7 {
			f.clean()
		}
	}
	f.settle()
	f.judge()
}

// tagFaults are faults of all that gives tags.
type tagFaults struct {
	t       *testing.T
	random  *rand.Rand
	library []byte
	events  []cardEvent // of cards that have lost their log
	counts  map[string]int
}

// happened is the number of faults so far. A process that is to be killed may not come in time.
func (f *tagFaults) happened() (n int) {
	for _, times := range f.counts {
		n += times
	}
	return n
}

// submit lets two or three jobs get tags. Alice's have two nodes, and bob's have one, so their services can be told apart.
func (f *tagFaults) submit() {
	f.t.Helper()
	for range 2 + f.random.IntN(2) {
		u, nodes := alice, 2
		if f.random.IntN(3) > 0 {
			u, nodes = bob, 1
		}
		f.job(u, nodes, fmt.Sprintf("0.%d", f.random.IntN(10)))
	}
}

// job submits a job that has tags for some seconds.
func (f *tagFaults) job(u user, nodes int, seconds string) *job {
	f.t.Helper()
	id := u.must(f.t, fmt.Sprintf("cd ~ && sbatch --parsable --output=/dev/null --requeue --time=10 --job-name=%s --nodes=%d --vm-fabric=vni:4 --wrap 'srun true; sleep %s'",
		f.t.Name(), nodes, seconds))
	return &job{f.t, u, id, ""}
}

// strike does something at a random moment.
func (f *tagFaults) strike() {
	f.t.Helper()
	time.Sleep(time.Duration(f.random.IntN(1500)) * time.Millisecond)
	switch kind := f.random.IntN(50); {
	case kind == 0:
		f.powerCut()
	case kind < 12:
		f.kill("ctl", "slurmv-fabric")
	case kind < 20:
		f.kill("n1", "slurmv-agent")
	case kind < 28:
		f.kill("n2", "slurmv-agent")
	case kind < 33:
		f.counts["slurmctld is killed"]++
		runs := f.calm()
		killSlurmctld(f.t, "")
		bob.must(f.t, "scancel "+runs.id)
	case kind < 38:
		f.putBackLedger()
	case kind < 44:
		f.counts["confirmations are lost"]++
		root.run(f.t, "scontrol update nodename=n[1-2] comment=lost")
	default:
		f.busyForAWhile()
	}
}

// kill kills the next process of that name on a host, at a random moment of its life.
func (f *tagFaults) kill(host, name string) {
	f.t.Helper()
	o := root.run(f.t, fmt.Sprintf(`
for try in $(seq 100); do
	for p in $(pgrep -x %s); do
		[[ /proc/$p/ns/net -ef /proc/self/ns/net ]] || continue
		sleep 0.0%02d
		kill -9 $p && exit
	done
done
exit 1`, name, f.random.IntN(40)), "--node", host)
	if o.code == 0 {
		f.counts[name+" is killed on "+host]++
	}
}

// putBackLedger kills slurmctld and what it has started, and puts back the ledger that the last call has kept. It keeps the
// present one.
func (f *tagFaults) putBackLedger() {
	f.t.Helper()
	f.counts["the ledger is an old copy"]++
	runs := f.calm()
	dir := root.must(f.t, "scontrol show config | sed -n 's/^StateSaveLocation *= //p'")
	killSlurmctld(f.t, `
for p in $(pgrep -x slurmv-fabric); do
	[[ ! /proc/$p/ns/net -ef /proc/self/ns/net ]] || kill -9 $p
done
cd `+dir+`
cp -p slurm-v-fabric.db now.db
[[ ! -e old.db ]] || mv old.db slurm-v-fabric.db
mv now.db old.db`)
	bob.must(f.t, "scancel "+runs.id)
}

// calm waits until slurmctld has saved its state, with the job that it returns, which runs, and no job that begins. A
// slurmctld that is killed earlier starts jobs a second time that run already, and drains their nodes ("Duplicate jobid").
func (f *tagFaults) calm() (runs *job) {
	f.t.Helper()
	runs = f.job(bob, 1, "500")
	if !poll(func() bool { f.clean(); return root.must(f.t, "squeue -h -t PENDING,CONFIGURING,COMPLETING") == "" }) { // jobs wait for VNIs in quarantine
		f.t.Fatalf("jobs do not begin: %s", root.must(f.t, "squeue"))
	}
	saveSlurmctld(f.t, runs)
	return runs
}

// clean does what the documentation asks an administrator to do, after an old copy of the ledger and at other times.
func (f *tagFaults) clean() {
	f.t.Helper()
	if cleanNodes(f.t) {
		root.run(f.t, "slurmv fabric release --force unknown")
	}
}

// busyForAWhile lets a card refuse to destroy services.
func (f *tagFaults) busyForAWhile() {
	f.t.Helper()
	f.counts["a card is busy"]++
	f.busy(fmt.Sprint("n", 1+f.random.IntN(2)), fmt.Sprintf("BUSY=-1\nBUSY_CARD=%d\n", f.random.IntN(4)))
	time.Sleep(time.Duration(f.random.IntN(4000)) * time.Millisecond)
	f.busy("", "")
}

// busy gives the cards of a node further settings; those of the other have none.
func (f *tagFaults) busy(node, settings string) {
	f.t.Helper()
	for n, of := range map[string]string{"n1": firstServices, "n2": ""} {
		if n == node {
			of += settings
		}
		setCards(f.t, n, of+"LOG=1\n")
	}
}

// powerCut cuts the power of n2. Its cards have no services then.
func (f *tagFaults) powerCut() {
	f.t.Helper()
	f.counts["n2 loses its power"]++
	f.events = append(f.events, readCards(f.t, "n2")...)
	clusterNode(f.t, "n2", "off")
	f.events = append(f.events, cardEvent{at: time.Now().UnixNano(), node: "n2", what: "off"})
	root.must(f.t, "scontrol update nodename=n2 state=down reason=test")
	clusterNode(f.t, "n2", "on")
	putCards(f.t, "n2", f.library, "LOG=1\n")
	root.run(f.t, "scontrol update nodename=n2 state=resume")
}

// settle waits until all VNIs are back, and checks that nothing is left on the nodes.
func (f *tagFaults) settle() {
	f.t.Helper()
	f.busy("", "")
	root.must(f.t, "scancel --name="+f.t.Name()+" --state=PENDING")
	if !poll(func() bool { return root.must(f.t, "squeue -h --name="+f.t.Name()) == "" }) {
		f.t.Errorf("jobs do not end:\n%s", root.must(f.t, "squeue"))
	}
	back := func() bool { cleanNodes(f.t); row := vnis(f.t); return row.Free+row.Quarantined == row.Size }
	if !poll(back) {
		f.t.Errorf("the VNIs do not come back: %s", root.must(f.t, "slurmv fabric pool"))
	}
	f.forgive()
	if !poll(func() bool { return vnis(f.t).Free == vnis(f.t).Size }) {
		f.t.Errorf("the VNIs do not come back: %s", root.must(f.t, "slurmv fabric pool"))
	}
	for _, node := range []string{"n1", "n2"} {
		root.must(f.t, "slurmv clean --node-name "+node, "--node", node)
		if list := services(f.t, node); regexp.MustCompile(`\b10[2-5][0-9]\b`).MatchString(list) {
			f.t.Errorf("%s has services:\n%s", node, list)
		}
	}
	if !poll(func() bool { return root.run(f.t, "sinfo -h -N -o %T | grep -v idle").code == 1 }) {
		f.t.Errorf("nodes are not usable: %s", root.must(f.t, "sinfo -N -o '%N %T %E'"))
	}
}

// forgive does what the pool says about VNIs in quarantine. They are there if an old ledger said that jobs which had ended
// still had them, when others had them already.
func (f *tagFaults) forgive() {
	f.t.Helper()
	f.counts["VNIs in quarantine"] = vnis(f.t).Quarantined
	if f.counts["VNIs in quarantine"] > 0 && f.counts["the ledger is an old copy"] == 0 {
		f.t.Errorf("VNIs are in quarantine, and no ledger was an old one: %s", root.must(f.t, "slurmv fabric pool"))
	}
	root.must(f.t, `slurmv fabric pool | grep -o 'slurmv fabric release --force .*' | sort -u | sh`)
}

// judge looks for a VNI that a job had while another one still had it.
func (f *tagFaults) judge() {
	f.t.Helper()
	for _, node := range []string{"n1", "n2"} {
		f.events = append(f.events, readCards(f.t, node)...)
	}
	shared, again := replay(f.events, f.userID(alice))
	for _, s := range shared {
		f.t.Error(s)
	}
	if again < len(f.events)/20 {
		f.t.Errorf("VNIs were given again %d times only", again)
	}
	f.t.Logf("%d events of services, VNIs were given again %d times, faults: %v", len(f.events), again, f.counts)
}

func (f *tagFaults) userID(u user) int {
	f.t.Helper()
	id, err := strconv.Atoi(root.must(f.t, "id -u "+string(u)))
	if err != nil {
		f.t.Fatal(err)
	}
	return id
}

// A job's tags stay its own when the backup controller, on n2, takes over from slurmctld, and when slurmctld comes back. Each
// knows what the other has given, and takes it back.
func TestTagsMoveToTheBackupController(t *testing.T) {
	giveCards(t)
	startBackup(t)
	byPrimary := holdTags(t, alice)
	saveSlurmctld(t, byPrimary)
	root.must(t, endSlurmctld+inControl)
	byBackup := holdTags(t, bob)
	byPrimary.letGo()
	saveSlurmctld(t, byBackup)
	root.must(t, startSlurmctld("ctl is UP"))
	root.must(t, endSlurmctld, "--node", "n2")
	root.must(t, inControl)
	last := holdTags(t, alice)
	allDiffer(t, []string{byPrimary.vnisOf(""), byBackup.vnisOf(""), last.vnisOf("")})
	if list := services(t, "n1"); !strings.Contains(list, " "+byBackup.vnisOf("")+" ") {
		t.Errorf("the job of the backup controller has lost its services:\n%s", list)
	}
	byBackup.letGo()
	last.letGo()
	vnisComeBack(t)
}

// inControl waits until a slurmctld answers, the primary one or the backup. One that stands by does not.
const inControl = "until squeue > /dev/null 2>&1; do sleep 0.5; done\n"

// startBackup starts the backup controller on n2, which ends with the test.
func startBackup(t *testing.T) {
	t.Helper()
	root.must(t, "install -d -o slurm -g slurm /run/slurm && "+startSlurmctld("n2 is UP"), "--node", "n2")
	t.Cleanup(func() {
		root.run(t, endSlurmctld, "--node", "n2")
		root.run(t, "squeue > /dev/null || slurmctld")
	})
}

// holdTags submits a job on n1 that has two VNIs, and waits until it has them.
func holdTags(t *testing.T, u user) *job {
	t.Helper()
	j := u.submit(t, "--nodes=1 --nodelist=n1 --vm-fabric=vni:2", tagHolder)
	j.vnisOf("")
	return j
}

// A cardEvent is what has happened to a service.
type cardEvent struct {
	at                 int64 // ns since 1970
	node, what         string
	card, service, uid int
	vnis               []string
}

// readCards reads the log of a node's cards.
func readCards(t *testing.T, node string) (all []cardEvent) {
	t.Helper()
	for line := range strings.Lines(root.must(t, "[[ ! -e "+libcxi+".log ]] || cat "+libcxi+".log", "--node", node)) {
		e := cardEvent{node: node}
		if _, err := fmt.Sscan(line, &e.at, &e.what, &e.card, &e.service, &e.uid); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		e.vnis = strings.Fields(line)[5:]
		all = append(all, e)
	}
	return all
}

// replay returns what services of two jobs have shared, and how often a VNI was given again. Jobs of the user wide have
// services on two nodes, those of others on one; each job has one service on each of a node's cards.
func replay(events []cardEvent, wide int) (shared []string, again int) {
	slices.SortStableFunc(events, func(a, b cardEvent) int { return int(a.at - b.at) })
	var live []cardEvent
	had := map[string]bool{}
	for _, e := range events {
		live = slices.DeleteFunc(live, func(old cardEvent) bool {
			return old.node == e.node && (e.what == "off" || e.what == "destroy" && old.card == e.card && old.service == e.service)
		})
		if e.what != "alloc" {
			continue
		}
		for _, old := range live {
			ofOneJob := old.uid == e.uid && (old.node == e.node && old.card != e.card || old.node != e.node && e.uid == wide)
			if !ofOneJob && slices.ContainsFunc(old.vnis, func(v string) bool { return slices.Contains(e.vnis, v) }) {
				shared = append(shared, fmt.Sprintf("%+v is there while %+v comes", old, e))
			}
		}
		if e.card == 0 && had[e.vnis[0]] {
			again++
		}
		had[e.vnis[0]] = true
		live = append(live, e)
	}
	return shared, again
}

// The judge sees a service that comes too early: on the same card, on another card of another user's job, on the other
// node. It allows those of one job.
func TestReplay(t *testing.T) {
	const alice, bob = 1, 2
	first := cardEvent{at: 1, node: "n1", what: "alloc", service: 2, uid: alice, vnis: []string{"1024", "1025"}}
	gone := cardEvent{at: 2, node: "n1", what: "destroy", service: 2}
	second := func(node string, card, uid int, vni string) cardEvent {
		return cardEvent{at: 3, node: node, what: "alloc", card: card, service: 3, uid: uid, vnis: []string{vni}}
	}
	for name, tt := range map[string]struct {
		events []cardEvent
		want   int
	}{
		"same card":               {[]cardEvent{first, second("n1", 0, alice, "1025")}, 1},
		"same card, other VNI":    {[]cardEvent{first, second("n1", 0, alice, "1026")}, 0},
		"same card, given back":   {[]cardEvent{first, gone, second("n1", 0, alice, "1025")}, 0},
		"same card, power cut":    {[]cardEvent{first, {at: 2, node: "n1", what: "off"}, second("n1", 0, alice, "1025")}, 0},
		"same card, other off":    {[]cardEvent{first, {at: 2, node: "n2", what: "off"}, second("n1", 0, alice, "1025")}, 1},
		"another card of the job": {[]cardEvent{first, second("n1", 1, alice, "1025")}, 0},
		"another card, user":      {[]cardEvent{first, second("n1", 1, bob, "1025")}, 1},
		"another node of the job": {[]cardEvent{first, second("n2", 0, alice, "1025")}, 0},
		"another node, user":      {[]cardEvent{first, second("n2", 0, bob, "1025")}, 1},
	} {
		if shared, _ := replay(tt.events, alice); len(shared) != tt.want {
			t.Errorf("%s: %q", name, shared)
		}
	}
}
