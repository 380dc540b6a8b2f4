package slurm

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDrainedFor(t *testing.T) {
	tests := map[string]struct {
		line string
		want bool
	}{
		"a node that we drained":            {"NodeName=n1 CPUAlloc=0 State=IDLE+DRAIN ThreadsPerCore=1 Reason=slurm-v: job 7 left something [root@2026-01-02]", true},
		"a node that somebody else drained": {"NodeName=n1 State=IDLE+DRAIN Reason=bad disk after slurm-v: [root@2026-01-02]", false},
		"a node in use":                     {"NodeName=n1 State=IDLE ThreadsPerCore=1", false},
		"a node that is down with our word": {"NodeName=n1 State=DOWN Reason=slurm-v: job 7", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := drainedFor(tt.line, "slurm-v:"); got != tt.want {
				t.Errorf("drainedFor = %v", got)
			}
		})
	}
}

// Whoever took a node out of use knows why; nobody else puts it back.
func TestNodesThatAreOutOfUseForOthers(t *testing.T) {
	const why = " ThreadsPerCore=1 Reason=bad disk [root@2026-01-02]"
	tests := map[string]struct {
		line string
		want bool
	}{
		"a node in use":                    {"NodeName=n1 State=IDLE ThreadsPerCore=1", false},
		"a node in use with an old reason": {"NodeName=n1 State=MIXED" + why, false},
		"a node that we drained":           {"NodeName=n1 State=IDLE+DRAIN ThreadsPerCore=1 Reason=slurm-v: job 7 left something [root@2026-01-02]", false},
		"a drained node":                   {"NodeName=n1 State=IDLE+DRAIN" + why, true},
		"a node that is draining":          {"NodeName=n1 State=ALLOCATED+DRAIN+MAINTENANCE" + why, true},
		"a node that is down":              {"NodeName=n1 State=DOWN*" + why, true},
		"a node that fails":                {"NodeName=n1 State=MIXED+FAIL" + why, true},
		"a comment like our reason":        {"NodeName=n1 State=IDLE+DRAIN" + why + " Comment=Reason=slurm-v: x", true},
		"a node of Slurm 22.05":            {drained2205, true},
		"another one":                      {record2205, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := outOfUseBut(tt.line, "slurm-v:"); got != tt.want {
				t.Errorf("outOfUseBut = %v", got)
			}
			if tt.want && drainedFor(tt.line, "slurm-v:") {
				t.Error("it would be resumed")
			}
		})
	}
}

// A node may be in several partitions, and a partition without nodes.
func TestCountNodes(t *testing.T) {
	const before = " AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A DefaultTime=NONE MaxNodes=UNLIMITED MinNodes=0 "
	const after = " PriorityJobFactor=1 PriorityTier=1 RootOnly=NO OverSubscribe=NO State=UP TotalCPUs=12 TotalNodes=3 SelectTypeParameters=NONE\n"
	text := ""
	for partition, nodes := range map[string]string{"p": "n[1-3]", "hid": "n[2,10],m1", "none": "(null)"} {
		text += "PartitionName=" + partition + before + "Nodes=" + nodes + after
	}
	c := Client{Bin: commands(t, map[string]string{"scontrol": `[ "$*" = "--all --local --oneliner show partition" ] && cat <<'END'
` + text + `END`})}
	if got, err := CountNodes(t.Context(), c); got != 5 || err != nil {
		t.Errorf("%d nodes, %v", got, err)
	}
	if got, err := CountNodes(t.Context(), Client{Bin: commands(t, map[string]string{"scontrol": "exit 1"})}); err == nil {
		t.Errorf("slurmctld does not answer, and there are %d nodes", got)
	}
}

func TestNodeAddrs(t *testing.T) {
	const text = `NodeName=n1 Arch=x86_64 CoresPerSocket=4 Gres=vf:16 NodeAddr=10.77.0.11 NodeHostName=host1 Version=22.05.8 OS=Linux 6 Comment=NodeAddr=10.0.0.1
NodeName=n2 CoresPerSocket=4 NodeAddr=n2.site NodeHostName=n2 State=DOWN* Reason=x NodeName=n3 NodeAddr=10.0.0.1
`
	want := map[string]string{"n1": "10.77.0.11", "n2": "n2.site"}
	if diff := cmp.Diff(want, nodeAddrs(text)); diff != "" {
		t.Errorf("addresses differ (-want +got):\n%s", diff)
	}
}
