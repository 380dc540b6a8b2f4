package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/fabric/letter"
)

const goodFabric = "[fabric]\nkey = \"/etc/slurm-v/fabric.key\"\n[fabric.vni]\npool = \"2000-2999\"\n"

// fabricNode is a node with a site's tags.
func fabricNode(t *testing.T) *node {
	n := newNode(t)
	n.write(t, "conf", goodFabric, 0o644)
	n.write(t, "etc/slurm-v/fabric.key", letter.NewKey()+"\n", 0o640)
	n.programs["scontrol show config"] = goodSettings + "PrologSlurmctld = /lib/prolog-slurmctld\nEpilogSlurmctld = /lib/epilog-slurmctld\nSwitchType = (null)\n"
	return n
}

func (n *node) setting(name, value string) {
	var lines []string
	for line := range strings.Lines(n.programs["scontrol show config"]) {
		if !strings.HasPrefix(line, name) {
			lines = append(lines, line)
		}
	}
	n.programs["scontrol show config"] = strings.Join(append(lines, name+" = "+value+"\n"), "")
}

// chownKey gives the key to a user and a group.
func (n *node) chownKey(t *testing.T, uid, gid int) {
	t.Helper()
	if err := os.Chown(filepath.Join(n.root, "etc/slurm-v/fabric.key"), uid, gid); err != nil {
		t.Skip("gives a file to another user: run it as root")
	}
}

// slingshot gives the node a card, and what slurmv fabric list says of it.
func (n *node) slingshot(t *testing.T, services string) {
	n.mkdir(t, "sys/class/cxi/cxi0")
	n.programs["slurmv fabric list --config /conf --output json"] = services
}

func TestFabric(t *testing.T) {
	const pkeys = "[fabric]\nkey = \"/etc/slurm-v/fabric.key\"\n[fabric.pkey]\npool = \"0x1000-0x1fff\"\n"
	const collectives = "[fabric.collectives]\nurl = \"https://fm\"\ntoken_file = \"/token\"\naddrs_per_job = 23\n"
	const scripts = "PrologSlurmctld, EpilogSlurmctld"
	tests := map[string]struct {
		change func(*testing.T, *node)
		want   []string
		advice string // text in the advice of the last one
	}{
		"a node that lacks nothing": {func(*testing.T, *node) {}, []string{}, ""},
		"a site without tags":       {func(t *testing.T, n *node) { n.write(t, "conf", "", 0o644); n.remove(t, "etc/slurm-v") }, []string{}, ""},
		"no key":                    {func(t *testing.T, n *node) { n.remove(t, "etc/slurm-v") }, []string{"error fabric key"}, "slurmv fabric key"},
		"a key that others can read": {func(t *testing.T, n *node) { n.write(t, "etc/slurm-v/fabric.key", letter.NewKey(), 0o644) },
			[]string{"error fabric key"}, "0640"},
		"a key that SlurmUser's group reads": {func(t *testing.T, n *node) { n.chownKey(t, 0, 64030) }, []string{}, ""},
		"a key that SlurmUser could change":  {func(t *testing.T, n *node) { n.chownKey(t, 64030, 64030) }, []string{"error fabric key"}, "of root"},
		"a key that is none": {func(t *testing.T, n *node) { n.write(t, "etc/slurm-v/fabric.key", "secret", 0o600) },
			[]string{"error fabric key"}, ""},
		"overlapping pools": {func(t *testing.T, n *node) {
			n.write(t, "conf", goodFabric+"[fabric.pool.g]\nkind = \"vni\"\npool = \"2500\"\npartitions = [\"g\"]\n", 0o644)
		}, []string{"error configuration", "skipped directories", "skipped resources"}, ""},
		"no PrologSlurmctld": {func(_ *testing.T, n *node) { n.setting("PrologSlurmctld", "(null)") }, []string{"error " + scripts}, "prolog-slurmctld"},
		"no EpilogSlurmctld": {func(_ *testing.T, n *node) { n.setting("EpilogSlurmctld", "(null)") }, []string{"error " + scripts}, "epilog-slurmctld"},
		"a script of the site's": {func(t *testing.T, n *node) {
			n.setting("PrologSlurmctld", "/site/prolog")
			n.write(t, "site/prolog", "#!/bin/sh\nslurmv fabric reserve || exit 1\n", 0o755)
		}, []string{}, ""},
		"a script that does not call us": {func(t *testing.T, n *node) {
			n.setting("PrologSlurmctld", "/site/prolog")
			n.write(t, "site/prolog", "#!/bin/sh\n", 0o755)
		}, []string{"error " + scripts}, "pass on"},
		"a script that is on the controller": {func(_ *testing.T, n *node) { n.setting("PrologSlurmctld", "/site/prolog") },
			[]string{"warning " + scripts}, "controller"},
		"one of several scripts": {func(_ *testing.T, n *node) {
			n.setting("PrologSlurmctld", "(null)")
			n.setting("PrologSlurmctld[0]", "/site/prolog")
			n.setting("PrologSlurmctld[1]", "/lib/prolog-slurmctld")
		}, []string{}, ""},
		"VNIs that Slurm gives to steps": {func(_ *testing.T, n *node) { n.setting("SwitchType", "switch/hpe_slingshot") },
			[]string{"error VNIs"}, "vnis="},
		"VNIs apart from Slurm's": {func(_ *testing.T, n *node) {
			n.setting("SwitchType", "switch/hpe_slingshot")
			n.setting("SwitchParameters", "vnis=3000-4000,tcs=BEST_EFFORT")
		}, []string{}, ""},
		"VNIs that overlap by one": {func(_ *testing.T, n *node) {
			n.setting("SwitchType", "switch/hpe_slingshot")
			n.setting("SwitchParameters", "tcs=BEST_EFFORT,vnis=2999-4000")
		}, []string{"error VNIs"}, ""},
		"sessions of ours and of Slurm's": {func(t *testing.T, n *node) {
			n.write(t, "conf", goodFabric+collectives, 0o644)
			n.setting("SwitchType", "switch/hpe_slingshot")
			n.setting("SwitchParameters", "vnis=3000-4000,fm_url=https://fm")
		}, []string{"error fabric manager"}, "fm_url="},
		"sessions of ours alone": {func(t *testing.T, n *node) {
			n.write(t, "conf", goodFabric+collectives, 0o644)
			n.setting("SwitchType", "switch/hpe_slingshot")
			n.setting("SwitchParameters", "vnis=3000-4000")
		}, []string{}, ""},
		"a card without its library": {func(t *testing.T, n *node) {
			n.slingshot(t, "")
			delete(n.programs, "slurmv fabric list --config /conf --output json")
		}, []string{"error libcxi"}, "install libcxi"},
		"a card": {func(t *testing.T, n *node) { n.slingshot(t, `[{"cards": ["cxi0"], "id": 1, "enabled": false}]`) }, []string{}, ""},
		"a card with its default service": {func(t *testing.T, n *node) { n.slingshot(t, `[{"cards": ["cxi0"], "id": 1, "enabled": true}]`) },
			[]string{"warning default CXI service"}, "cxi_service disable -d cxi0"},
		"P_Keys of which nobody hears": {func(t *testing.T, n *node) { n.write(t, "conf", pkeys, 0o644) }, []string{"warning P_Keys"}, ""},
		"OpenSM here, without its file": {func(t *testing.T, n *node) {
			n.write(t, "conf", pkeys+"partitions_file = \"/etc/opensm/partitions.conf\"\n", 0o644)
			n.write(t, "proc/88/comm", "opensm\n", 0o644)
		}, []string{"error P_Keys"}, ""},
		"OpenSM here": {func(t *testing.T, n *node) {
			n.write(t, "conf", pkeys+"partitions_file = \"/etc/opensm/partitions.conf\"\n", 0o644)
			n.write(t, "proc/88/comm", "opensm\n", 0o644)
			n.write(t, "etc/opensm/partitions.conf", "", 0o644)
		}, []string{}, ""},
		"OpenSM here, with a partition in which jobs meet": {func(t *testing.T, n *node) {
			n.write(t, "conf", pkeys+"partitions_file = \"/etc/opensm/partitions.conf\"\n", 0o644)
			n.write(t, "proc/88/comm", "opensm\n", 0o644)
			n.write(t, "etc/opensm/partitions.conf", "Default=0x7fff : ALL=full ;\nstorage=0x42 : ALL=full ;\n", 0o644)
		}, []string{"warning P_Keys"}, "in place of ALL"},
		"slurmctld here, and no way to OpenSM": {func(t *testing.T, n *node) {
			n.write(t, "conf", pkeys+"partitions_file = \"/etc/opensm/partitions.conf\"\n", 0o644)
			n.write(t, "proc/88/comm", "slurmctld\n", 0o644)
		}, []string{"error P_Keys"}, "opensm_command"},
		"slurmctld here, and a command": {func(t *testing.T, n *node) {
			n.write(t, "conf", pkeys+"opensm_command = [\"ssh\", \"sm1\"]\n", 0o644)
			n.write(t, "proc/88/comm", "slurmctld\n", 0o644)
		}, []string{}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := fabricNode(t)
			tt.change(t, n)
			results := n.check()
			got := []string{}
			for _, d := range different(results) {
				if d != "skipped SR-IOV" {
					got = append(got, d)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, r := range results {
				if len(got) > 0 && string(r.Status)+" "+r.Name == got[len(got)-1] && !strings.Contains(r.Advice, tt.advice) {
					t.Errorf("%+v: want advice with %q", r, tt.advice)
				}
			}
		})
	}
}
