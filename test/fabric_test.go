//go:build cluster

package test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/fabric/controller"
	"github.com/slurm-v/slurm-v/fabric/cxi/cxitest"
)

// The cluster's nodes have no Slingshot cards. A libcxi without cards stands for HPE's, where
// slurmv.toml says that the library is.
const libcxi = "/run/libcxi/libcxi.so.1"

// giveCards gives both nodes four cards, and takes them away when the test ends. Services
// have other numbers on n1 than on n2.
func giveCards(t *testing.T) {
	t.Helper()
	library := cardLibrary(t)
	for node, settings := range map[string]string{"n1": firstServices, "n2": ""} {
		putCards(t, node, library, settings)
		t.Cleanup(func() { root.must(t, "rm -r /run/libcxi", "--node", node) })
	}
}

// firstServices are the settings of n1's cards.
const firstServices = "FIRST_IDS=11,11,12,11\n"

func cardLibrary(t *testing.T) []byte {
	t.Helper()
	built, err := cxitest.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	library, err := os.ReadFile(built)
	if err != nil {
		t.Fatal(err)
	}
	return library
}

func putCards(t *testing.T, node string, library []byte, settings string) {
	t.Helper()
	o := root.runIn(t, library, "rm -rf /run/libcxi && mkdir /run/libcxi && cat > "+libcxi+" && chmod 755 "+libcxi, "--node", node)
	if o.code != 0 {
		t.Fatal(o.stderr)
	}
	setCards(t, node, settings)
}

// setCards changes the settings of a node's cards, all at once: jobs that end meanwhile read them.
func setCards(t *testing.T, node, settings string) {
	t.Helper()
	if o := root.runIn(t, []byte(settings), "cat > "+libcxi+".new && mv "+libcxi+".new "+libcxi+".conf", "--node", node); o.code != 0 {
		t.Fatal(o.stderr)
	}
}

// vnis is the state of the pool of VNIs.
func vnis(t *testing.T) controller.PoolRow {
	t.Helper()
	var rows []controller.PoolRow
	if err := json.Unmarshal([]byte(root.must(t, "slurmv fabric pool --output json")), &rows); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if row.Pool == "vni" {
			return row
		}
	}
	t.Fatalf("there is no pool of VNIs: %+v", rows)
	return controller.PoolRow{}
}

// vnisComeBack waits until nobody has a VNI.
func vnisComeBack(t *testing.T) {
	t.Helper()
	if !poll(func() bool { return vnis(t).Free == vnis(t).Size }) {
		t.Errorf("the VNIs do not come back: %+v", vnis(t))
	}
}

// allDiffer checks that no two runs of jobs have the same VNIs.
func allDiffer(t *testing.T, given []string) {
	t.Helper()
	slices.Sort(given)
	if len(slices.Compact(slices.Clone(given))) != len(given) {
		t.Errorf("runs of jobs have the same VNIs: %v", given)
	}
}

// services is what root sees on a node of the cards' services.
func services(t *testing.T, node string) string {
	t.Helper()
	return root.must(t, "slurmv fabric list", "--node", node)
}

// printTags prints in a program what it can know of its tags.
const printTags = `srun sh -c 'echo tags: $SLURMD_NODENAME $SLINGSHOT_VNIS $SLINGSHOT_DEVICES $SLINGSHOT_SVC_IDS $SLINGSHOT_TCS'`

var tagsLine = regexp.MustCompile(`(?m)^tags: (n[12]) ([0-9]+,[0-9]+) (\S+) (\S+) (\S+)$`)

// A job without VMs has VNIs: a service on each card of its nodes, of which one has fewer cards. Its
// programs are told of them, and nothing is left when it has ended. What users write into their environment, and into
// the job's record as far as they can, changes nothing. Not beside others: a node is drained.
func TestTagsOfJobsWithoutVMs(t *testing.T) {
	giveCards(t)
	setCards(t, "n2", "CARDS=3\n")
	j := alice.submit(t, "--nodes=2 --ntasks=2 --vm-fabric=vni:2,low-latency", printTags+`
SLURM_SPANK_SLURMV_FABRIC=vni:4 SLINGSHOT_VNIS=1,10 `+printTags+`
scontrol update jobid=$SLURM_JOB_ID admincomment=forged 2>&1 | grep -o 'denied'
slurmv fabric jobinfo $SLURM_JOB_ID | grep -c SLINGSHOT_VNIS
echo up; until [ -e seen ]; do sleep 0.5; done`)
	j.awaitOutput("up\n")
	contains(t, j.output(), "denied", "\n1\nup")
	lines := tagsLine.FindAllStringSubmatch(j.output(), -1)
	if len(lines) != 4 {
		t.Fatalf("%d programs have told their tags, want 4:\n%s", len(lines), j.output())
	}
	for _, l := range lines {
		want := map[string]string{"n1": "cxi0,cxi1,cxi2,cxi3 11,11,12,11", "n2": "cxi0,cxi1,cxi2 2,2,2"}[l[1]]
		if l[2] != lines[0][2] || l[3]+" "+l[4] != want || l[5] != "0x02" {
			t.Errorf("%q: want the VNIs %s, the cards and services %s, and low latency", l[0], lines[0][2], want)
		}
	}
	both := strings.ReplaceAll(lines[0][2], ",", ", ?")
	for _, node := range []string{"n1", "n2"} {
		if list := services(t, node); !regexp.MustCompile(both).MatchString(list) {
			t.Errorf("%s has no service with the VNIs %s:\n%s", node, lines[0][2], list)
		}
	}
	if row := vnis(t); row.Reserved != 2 {
		t.Errorf("the controller has %+v, want 2 VNIs reserved", row)
	}
	shortCards(t)
	setCards(t, "n1", firstServices+"BUSY=-1\nBUSY_CARD=1\n")
	j.letGo()
	drainedAndBack(t, j.id, lines[0][2])
	for _, node := range []string{"n1", "n2"} {
		if list := services(t, node); regexp.MustCompile(both).MatchString(list) {
			t.Errorf("%s still has a service of the job:\n%s", node, list)
		}
	}
	vnisComeBack(t)
}

// withOneVNI runs a program that tells its services on n1.
const withOneVNI = `cd ~ && salloc --nodes=1 --ntasks=1 --nodelist=n1 --vm-fabric=vni:1 srun sh -c 'echo "got <$SLINGSHOT_VNIS> <$SLINGSHOT_SVC_IDS>"'`

// shortCards runs jobs on n1 while another one has all pools and most queues of the cards there. They get what is left,
// and are told so. If a card gives nothing at all, the step fails, and says what is short.
func shortCards(t *testing.T) {
	t.Helper()
	setCards(t, "n1", firstServices+"TXQS=3\nLE_POOLS=1\nTLE_POOLS=2\n")
	o := bob.run(t, withOneVNI)
	less := regexp.MustCompile(`slurm-v: node n1: job \d+\.0 with VNI \d+ reserves less of cxi3 than its cores call for: ` +
		`\d TXQs of \d+, 0 LEs of \d+ \(all pools of LEs are taken\), 0 TLEs of \d+ \(all pools of TLEs are taken\)`)
	if o.code != 0 || !less.MatchString(o.stderr) || !regexp.MustCompile(`got <\d+> <12,12,13,12>`).MatchString(o.stdout) {
		t.Errorf("cards that have less: %+v", o)
	}
	setCards(t, "n1", firstServices+"ALLOC_ERRNO=28\n")
	o = bob.run(t, withOneVNI)
	contains(t, o.stderr, "on cxi0: the card has too few resources, even for less: 0 PTEs of ")
	if o.code == 0 || strings.Contains(o.stdout, "got") {
		t.Errorf("cards that have nothing: %+v", o)
	}
	if !poll(func() bool { row := vnis(t); return row.Free == row.Size-2 }) {
		t.Errorf("the VNIs do not come back: %+v", vnis(t))
	}
}

// drainedAndBack waits until n1, one of whose cards is still busy with the job's VNIs, is
// drained, and then until it takes jobs again. Meanwhile nobody has the VNIs.
func drainedAndBack(t *testing.T, job, both string) {
	t.Helper()
	reason := func() string { return root.must(t, "sinfo -h -n n1 -o %E") }
	want := "slurm-v: job " + job + "'s VNIs " + strings.ReplaceAll(both, ",", " and ") + " are still in use on cxi1"
	var seen string
	if !poll(func() bool { seen = reason(); return seen == want }) {
		t.Fatalf("n1 is not drained for the card: %s", seen)
	}
	if row := vnis(t); row.Releasing != 2 {
		t.Errorf("the controller has %+v, want 2 VNIs that are being released", row)
	}
	setCards(t, "n1", firstServices)
	if !poll(func() bool { return reason() == "none" }) {
		t.Errorf("n1 does not come back: %s", reason())
	}
}

// A job that asks for nothing has no tag, and none of those in the environment from which it
// was submitted.
func TestJobsWithoutTags(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, "--nodes=1 --vm-fabric=off --export=ALL,SLINGSHOT_VNIS=7,SLURMV_VLAN=7", `
srun sh -c 'echo "tags: <$SLINGSHOT_VNIS$SLURMV_VLAN>"'`)
	contains(t, j.completes(), "tags: <>")
	o := alice.run(t, "sbatch --vm-fabric=vni:42 --wrap true")
	contains(t, o.stderr, "--vm-fabric: vni:42 is too many; a job has at most 4 VNIs")
	if o.code == 0 {
		t.Error("the job was taken")
	}
}

// VMs of two jobs have VLANs of their own: those of one job hear each other over their VFs.
// Those of two jobs do not, although their VFs are on one bridge.
func TestJobsHaveVLANsOfTheirOwn(t *testing.T) {
	t.Parallel()
	const options, tell = withVF + "--sriov=1:pf=vf0 --nodelist=n1 ", "echo vlan: $SLURMV_VLAN; ping -c 3 "
	first := alice.submit(t, options+"--vm-per-node=2", `
slurm-v-run -Q -n 1 sh -c 'getent hosts vm1-vf0 | sed "s/^/address: /"; `+tell+`-w 60 vm1-vf0 > /dev/null && echo the own one answers'
until [ -e seen ]; do sleep 0.5; done`)
	first.awaitOutput("the own one answers")
	address := regexp.MustCompile(`address: (\S+)`).FindStringSubmatch(first.output())
	if address == nil {
		t.Fatalf("vm1 has no address:\n%s", first.output())
	}
	second := bob.submit(t, options+"--vm-per-node=1", `
slurm-v-run -Q -n 1 sh -c '`+tell+`-W 5 `+address[1]+` && echo the other one answers || echo nobody answers'`)
	contains(t, second.completes(), "nobody answers")
	vlan := regexp.MustCompile(`vlan: (2[0-9]{3})`)
	a, b := vlan.FindStringSubmatch(first.output()), vlan.FindStringSubmatch(second.output())
	if a == nil || b == nil || a[1] == b[1] {
		t.Errorf("the jobs have the VLANs %v and %v", a, b)
	}
	alice.must(t, "touch "+first.dir+"/seen")
	first.completes()
}

// A tagHolder is the script of a job that tells its VNIs and keeps them until the file seen is there.
const tagHolder = `srun sh -c 'echo "tags: <$SLURM_RESTART_COUNT> $SLINGSHOT_VNIS"'
until [ -e seen ]; do sleep 0.5; done`

// vnisOf waits until a run of a tagHolder has told its VNIs. restart is "" for the first run.
func (j *job) vnisOf(restart string) string {
	j.t.Helper()
	line := regexp.MustCompile(`tags: <` + restart + `> ([0-9]+,[0-9]+)\n`)
	j.eventually("tells its VNIs", func() bool { return line.MatchString(j.output()) })
	return line.FindStringSubmatch(j.output())[1]
}

// letGo ends a job whose script waits for the file seen.
func (j *job) letGo() {
	j.t.Helper()
	j.user.must(j.t, "touch "+j.dir+"/seen")
	j.completes()
}

// A slurmctld that is killed and starts again knows who has which tags, and so does the next
// run of a job that it puts back into the queue: it gets others. Not beside others: they need
// slurmctld.
func TestTagsOutliveSlurmctld(t *testing.T) {
	giveCards(t)
	const options = "--nodes=1 --requeue --vm-fabric=vni:2"
	stays, again := alice.submit(t, options, tagHolder), bob.submit(t, options, tagHolder)
	given := []string{stays.vnisOf(""), again.vnisOf("")}
	saveSlurmctld(t, again)
	killSlurmctld(t, "")
	bob.must(t, "scontrol requeue "+again.id)
	again.await("PENDING")
	root.must(t, "scontrol update jobid="+again.id+" starttime=now")
	later := alice.submit(t, options, tagHolder)
	given = append(given, again.vnisOf("1"), later.vnisOf(""))
	allDiffer(t, given)
	if list := services(t, stays.where()); !strings.Contains(list, " "+stays.vnisOf("")+" ") {
		t.Errorf("the job that went on has lost its services:\n%s", list)
	}
	for _, j := range []*job{stays, again, later} {
		j.letGo()
	}
	vnisComeBack(t)
}

// saveSlurmctld waits until slurmctld has saved a change of the job, and so all older ones. It
// saves every few seconds: if it is killed before, it takes running jobs for waiting ones.
func saveSlurmctld(t *testing.T, j *job) {
	t.Helper()
	mark := "saved-" + j.id
	root.must(t, "scontrol update jobid="+j.id+" comment="+mark+`
dir=$(scontrol show config | sed -n 's/^StateSaveLocation *= //p')
until grep -q `+mark+` $dir/job_state; do sleep 0.2; done`)
}

// killSlurmctld kills slurmctld, starts it again, and waits until it answers. While it is dead, the shell does the rest.
func killSlurmctld(t *testing.T, meanwhile string) {
	t.Helper()
	root.must(t, endSlurmctld+meanwhile+"\n"+startSlurmctld("UP"))
}

// startSlurmctld is shell that starts slurmctld, and waits for these words of scontrol's ping.
func startSlurmctld(says string) string {
	return "slurmctld && until scontrol ping | grep -q '" + says + "'; do sleep 0.2; done\n"
}

// endSlurmctld is shell that kills slurmctld.
const endSlurmctld = `pid=$(cat /run/slurm/slurmctld.pid) && kill -9 $pid
while kill -0 $pid 2>/dev/null; do sleep 0.1; done
`

// What users can write about their jobs gives them no tags of others, and nobody reads
// another user's. The controls: the victim's letter can be read and copied, and the victim's
// own programs have the VNIs.
func TestForgedTags(t *testing.T) {
	giveCards(t)
	victim := alice.submit(t, "--nodes=1 --nodelist=n1 --vm-fabric=vni:2", tagHolder)
	its := victim.vnisOf("")
	letter := regexp.MustCompile(`AdminComment=.*(slurm-v:\S{40,})`).FindStringSubmatch(bob.must(t, "scontrol show job "+victim.id))
	if letter == nil {
		t.Fatal("bob cannot read the letter that he is to copy")
	}
	if !regexp.MustCompile(`SLINGSHOT_VNIS +` + its).MatchString(alice.must(t, "slurmv fabric jobinfo "+victim.id)) {
		t.Error("alice does not see her own VNIs")
	}
	if o := bob.run(t, "slurmv fabric jobinfo "+victim.id); o.code == 0 || strings.Contains(o.stdout+o.stderr, its) {
		t.Errorf("bob reads alice's tags: %+v", o)
	}
	extra := "--comment='" + letter[1] + "'"
	if bob.run(t, "sbatch --help | grep -q -- --extra=").code == 0 {
		extra += " --extra='" + letter[1] + "'"
	}
	forged := bob.submit(t, "--nodes=1 --nodelist=n1 --vm-fabric=vni:2 "+extra, `
scontrol update jobid=$SLURM_JOB_ID comment='`+letter[1]+`'
export SLURM_SPANK_SLURMV_FABRIC=vni:4 SPANK_SLURMV_FABRIC=vni:4 SLURMV_FABRIC_JOB=`+victim.id+` SLINGSHOT_VNIS=`+its+`
`+tagHolder)
	if got := forged.vnisOf(""); got == its {
		t.Errorf("bob's job has alice's VNIs %s", got)
	}
	without := bob.submit(t, "--nodes=1 --nodelist=n1 "+extra, `
SLURMV_FABRIC=vni:4 srun sh -c 'echo "none: <$SLINGSHOT_VNIS>"'
SLURM_SPANK_SLURMV_FABRIC=vni:2 srun echo it ran || echo "ended with $?"`)
	said := without.completes()
	contains(t, said, "none: <>")
	contains(t, said, "has no reservation of tags on the fabric in its record: either it was submitted without --vm-fabric")
	contains(t, said, "ended with 1")
	for _, j := range []*job{victim, forged} {
		j.letGo()
	}
}

// editOnCtl gives the host of slurmctld, from which jobs are submitted, another file until the test ends: the cluster's
// own as sed changes it.
func editOnCtl(t *testing.T, file, edit string) {
	t.Helper()
	undo := "umount -l " + file + " 2>/dev/null || :"
	edited := "/run/edited-" + filepath.Base(file)
	root.must(t, undo+"\nsed '"+edit+"' "+file+" > "+edited+"\nchmod 644 "+edited+"\n! cmp -s "+edited+" "+file+" && mount --bind "+edited+" "+file)
	t.Cleanup(func() { root.must(t, undo) })
}

// editVNIs edits the cluster's pool of VNIs, and the section [fabric] before it.
func editVNIs(t *testing.T, pool, settings string) {
	t.Helper()
	editOnCtl(t, clusterDir()+"/etc/slurm-v/slurmv.toml", `s/^pool = "1024-1055"/pool = "`+pool+`"/; s/^cooling = 1$/&\n`+settings+`/`)
}

// If the pool has too few VNIs, jobs do not start, and say why; where the site wants that, they go on without. A pool that
// changes under a job gives what it has now. Not beside others: their pool changes.
func TestAPoolThatIsEmptyAndChanges(t *testing.T) {
	giveCards(t)
	const tooFew = `pool "vni": 1 VNI wanted, 0 of 2 free`
	editVNIs(t, "1024-1025", "")
	holder := alice.submit(t, "--nodes=1 --nodelist=n1 --vm-fabric=vni:2", tagHolder)
	holder.vnisOf("")
	o := bob.run(t, withOneVNI)
	contains(t, o.stderr, tooFew)
	if o.code == 0 || strings.Contains(o.stdout, "got") {
		t.Errorf("a job without VNIs has started: %+v", o)
	}
	batch := bob.submit(t, "--nodes=1 --nodelist=n1 --requeue --vm-fabric=vni:1", "echo it started")
	batch.eventually("is told why it does not start", func() bool {
		return strings.Contains(bob.must(t, "scontrol show job "+batch.id), tooFew) && batch.state() == "PENDING"
	})
	bob.must(t, "scancel "+batch.id)
	batch.await("CANCELLED")

	editVNIs(t, "1025-1026", "")
	if o := bob.run(t, withOneVNI); !strings.Contains(o.stdout, "got <1026>") {
		t.Errorf("from a pool that has moved under a job: %+v", o)
	}
	if !poll(func() bool { return vnis(t).Free == 1 }) {
		t.Errorf("the VNI of the new pool does not come back: %+v", vnis(t))
	}
	editVNIs(t, "1024-1025", `exhausted = "empty"`)
	o = bob.run(t, withOneVNI)
	contains(t, o.stdout, "got <> <>")
	contains(t, o.stderr, "has no VNI: 1 VNI wanted, 0 of 2 free")

	editVNIs(t, "1025-1026", "")
	alice.must(t, "touch "+holder.dir+"/seen")
	holder.completes()
	if !poll(func() bool { return vnis(t).Free == 2 }) {
		t.Errorf("the VNIs do not come back: %+v", vnis(t))
	}
}

// Jobs of a partition with a pool of its own have their VNIs from there. Not beside others: the pools change.
func TestAPartitionWithAPoolOfItsOwn(t *testing.T) {
	giveCards(t)
	editOnCtl(t, clusterDir()+"/etc/slurm-v/slurmv.toml", `s/^pool = "1024-1055"/pool = "1024-1039"/
$ a [fabric.pool.its-own]\nkind = "vni"\npool = "1040-1055"\npartitions = ["main"]`)
	if o := bob.run(t, withOneVNI); !regexp.MustCompile(`got <10(4\d|5[0-5])>`).MatchString(o.stdout) {
		t.Errorf("not from the partition's pool: %+v", o)
	}
	if !poll(func() bool {
		return regexp.MustCompile(`(?m)^its-own +vni +16 +16 `).MatchString(root.must(t, "slurmv fabric pool"))
	}) {
		t.Errorf("the VNI of the partition's pool does not come back:\n%s", root.must(t, "slurmv fabric pool"))
	}
	vnisComeBack(t)
}

// Both components of a heterogeneous job have its VNIs, and both give them back. Where VNIs are licences, a job waits for them
// as for all others, and slurmctld does not try to start it before. Not beside others: Slurm's configuration changes.
func TestVNIsAreLicences(t *testing.T) {
	giveCards(t)
	editVNIs(t, "1024-1026", "licenses = true")
	editOnCtl(t, clusterDir()+"/etc/slurm/slurm.conf", "$ a Licenses=slurmv_vni:2")
	root.must(t, "scontrol reconfigure")
	t.Cleanup(func() { root.must(t, "umount -l "+clusterDir()+"/etc/slurm/slurm.conf && scontrol reconfigure") })
	whole := alice.submit(t, "--nodes=1 --nodelist=n1 --vm-fabric=vni:2 : --nodes=1 --nodelist=n2", `
for group in 0 1; do `+strings.Replace(printTags, "srun", "srun --het-group=$group", 1)+`; done
echo up; until [ -e seen ]; do sleep 0.5; done`)
	whole.awaitOutput("up\n")
	waits := bob.submit(t, "--nodes=1 --nodelist=n2 --vm-fabric=vni:1", `srun sh -c 'echo "one: $SLINGSHOT_VNIS"'`)
	waits.eventually("waits for its licence", func() bool { return bob.must(t, "squeue -h -o %r -j "+waits.id) == "Licenses" })
	lines := tagsLine.FindAllStringSubmatch(whole.output(), -1)
	if len(lines) != 2 {
		t.Fatalf("%d components have told their tags, want 2:\n%s", len(lines), whole.output())
	}
	for i, node := range []string{"n1", "n2"} {
		want := map[string]string{"n1": "11,11,12,11", "n2": "2,2,2,2"}[node]
		if l := lines[i]; l[1] != node || l[2] != lines[0][2] || l[4] != want {
			t.Errorf("component %d: %q, want the VNIs %s by the services %s of %s", i, l[0], lines[0][2], want, node)
		}
	}
	if row := vnis(t); row.Reserved != 2 || row.Free != 1 {
		t.Errorf("the controller has %+v, want 2 VNIs reserved and one free", row)
	}
	alice.must(t, "touch "+whole.dir+"/seen")
	whole.completes()
	if said := waits.completes(); !regexp.MustCompile(`one: 102[456]\n`).MatchString(said) {
		t.Errorf("the job that has waited has %s", said)
	}
	if shown := bob.must(t, "scontrol show job "+waits.id); !strings.Contains(shown, "Restarts=0") {
		t.Errorf("slurmctld has tried to start it before: %s", shown)
	}
	if !poll(func() bool { return vnis(t).Free == 3 }) {
		t.Errorf("the VNIs do not come back: %+v", vnis(t))
	}
	for _, node := range []string{"n1", "n2"} {
		if list := services(t, node); regexp.MustCompile(`\b102[456]\b`).MatchString(list) {
			t.Errorf("%s still has services of jobs:\n%s", node, list)
		}
	}
}

// A job without VMs and tags starts no program of Slurm-V on its nodes. The control: a job with
// tags does. Not beside others: the installed agent notes that it is started.
func TestPlainJobsStartNothing(t *testing.T) {
	giveCards(t)
	agent := clusterDir() + "/usr/libexec/slurm-v/slurmv-agent"
	must := func(command string) {
		t.Helper()
		if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	must("mv " + agent + " " + agent + ".real")
	t.Cleanup(func() { must("mv " + agent + ".real " + agent) })
	note := "#!/bin/sh\necho \"$*\" 2>/dev/null >>/run/slurmv-started\nexec " + agent + ".real \"$@\"\n"
	if err := os.WriteFile(agent, []byte(note), 0o755); err != nil {
		t.Fatal(err)
	}
	started := func() string {
		return root.must(t, "cat /run/slurmv-started; rm -f /run/slurmv-started", "--node", "n1")
	}
	tagged := alice.submit(t, "--nodes=1 --nodelist=n1 --vm-fabric=vni:1", "srun true")
	tagged.completes()
	if !poll(func() bool { return vnis(t).Free == vnis(t).Size }) {
		t.Fatalf("the VNIs do not come back: %+v", vnis(t))
	}
	contains(t, started(), "fabric up", "reclaim")
	plain := alice.submit(t, "--nodes=1 --nodelist=n1", "srun true")
	plain.completes()
	root.must(t, "until [ $(scontrol show node n1 | grep -c 'State=IDLE ') = 1 ]; do sleep 0.2; done")
	if got := root.must(t, "cat /run/slurmv-started 2>/dev/null || :", "--node", "n1"); got != "" {
		t.Errorf("a job without VMs and tags has started: %s", got)
	}
}
