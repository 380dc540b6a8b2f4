package slurm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What scontrol 22.05.8 answered, with SLURM_TIME_FORMAT=%s, for a node with a comment, for
// one with a reason, and for one that slurmctld has not seen yet.
const (
	record2205 = `NodeName=n1 Arch=x86_64 CoresPerSocket=4  CPUAlloc=4 CPUEfctv=4 CPUTot=4 CPULoad=10.63 AvailableFeatures=(null) ActiveFeatures=(null) Gres=(null) NodeAddr=10.99.9.1 NodeHostName=ctl Version=22.05.8 OS=Linux 6.1.0 #1 SMP PREEMPT_DYNAMIC @0  RealMemory=100 AllocMem=0 FreeMem=18389 Sockets=1 Boards=1 State=ALLOCATED ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=p,hid  BootTime=1795501322 SlurmdStartTime=1795502942 LastBusyTime=1795502942 CfgTRES=cpu=4,mem=100M,billing=4 AllocTRES=cpu=4 CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s Comment=ask bob State=DOWN BootTime=1 Extra=x Comment=fake
`
	drained2205 = `NodeName=n2 Arch=x86_64 CoresPerSocket=4  CPUAlloc=1 CPUEfctv=4 CPUTot=4 CPULoad=10.63 AvailableFeatures=(null) ActiveFeatures=(null) Gres=(null) NodeAddr=10.99.9.1 NodeHostName=ctl Port=7819 Version=22.05.8 OS=Linux 6.1.0 #1 SMP PREEMPT_DYNAMIC @0  RealMemory=100 AllocMem=0 FreeMem=18389 Sockets=1 Boards=1 State=MIXED+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=p,hid  BootTime=1795501322 SlurmdStartTime=1795502943 LastBusyTime=1795502943 CfgTRES=cpu=4,mem=100M,billing=4 AllocTRES=cpu=1 CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s Reason=why Comment=no [root@1795502981] Comment=slurm-v:TEXT
`
	unknown2205 = `NodeName=n3 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=4 CPUTot=4 CPULoad=N/A AvailableFeatures=(null) ActiveFeatures=(null) Gres=(null) NodeAddr=10.99.9.9 NodeHostName=elsewhere Port=7820  RealMemory=100 AllocMem=0 FreeMem=N/A Sockets=4 Boards=1 State=UNKNOWN+NOT_RESPONDING ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=p,hid  BootTime=None SlurmdStartTime=None LastBusyTime=Unknown CfgTRES=cpu=4,mem=100M,billing=4 AllocTRES= CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s
`
	// Slurm 24.11 and 26.05, by slurm_sprint_node_table in their src/api/node_info.c: a
	// reservation's name and the topology follow the comment.
	record2411 = `NodeName=n4 Arch=x86_64 CoresPerSocket=4  CPUAlloc=0 CPUEfctv=4 CPUTot=4 CPULoad=0.05 AvailableFeatures=(null) ActiveFeatures=(null) Gres=(null) NodeAddr=n4 NodeHostName=n4 Version=24.11.5 OS=Linux 6.12 #1 SMP  RealMemory=100 AllocMem=0 FreeMem=18389 Sockets=1 Boards=1 State=DOWN+DRAIN+NOT_RESPONDING ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=p  BootTime=1795501322 SlurmdStartTime=1795502942 LastBusyTime=1795502942 ResumeAfterTime=None CfgTRES=cpu=4,mem=100M,billing=4 AllocTRES= CurrentWatts=0 AveWatts=0  Comment=slurm-v:TEXT InstanceId=i-1 InstanceType=big ReservationName=maint
`
	record2605 = `NodeName=n5 Arch=x86_64 CoresPerSocket=4  CPUAlloc=0 CPUEfctv=4 CPUTot=4 CPULoad=0.05 AvailableFeatures=(null) ActiveFeatures=(null) Gres=(null) NodeAddr=n5 NodeHostName=n5 Version=26.05.5 OS=Linux 6.19 #1 SMP  RealMemory=100 AllocMem=0 FreeMem=18389 Sockets=1 Boards=1 State=IDLE* ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=p  BootTime=1795501322 SlurmdStartTime=1795502942 LastBusyTime=1795502942 ResumeAfterTime=None CfgTRES=cpu=4,mem=100M,billing=4 AllocTRES=  Comment=slurm-v:TEXT Topology=tree:s1
`
	allRecords = record2205 + drained2205 + unknown2205 + record2411 + record2605
)

func TestParseNodeRecords(t *testing.T) {
	got, err := parseNodeRecords(allRecords, []string{"n1", "n2", "n3", "n4", "n5", "n6"})
	if err != nil {
		t.Fatal(err)
	}
	for name, record := range got {
		_, record.Comment, _ = strings.Cut(record.Comment, "Comment= ") // the first texts of scontrol differ, and do not matter
		got[name] = record
	}
	want := map[string]NodeRecord{
		"n1": {"n1", []string{"ALLOCATED"}, "ask bob State=DOWN BootTime=1 Extra=x Comment= fake"},
		"n2": {"n2", []string{"MIXED", "DRAIN"}, "no [root@1795502981] Comment= slurm-v:TEXT"},
		"n3": {"n3", []string{"UNKNOWN", "NOT_RESPONDING"}, ""},
		"n4": {"n4", []string{"DOWN", "DRAIN", "NOT_RESPONDING"}, "slurm-v:TEXT InstanceId=i-1 InstanceType=big ReservationName=maint"},
		"n5": {"n5", []string{"IDLE"}, "slurm-v:TEXT Topology=tree:s1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records differ (-want +got):\n%s", diff)
	}
}

func TestNodeRecordsThatAreNotBelieved(t *testing.T) {
	line := strings.TrimRight(record2205, "\n")
	tests := map[string]struct{ text, err string }{
		"a line in another node's comment": {strings.Replace(drained2205, "TEXT", "TEXT\n"+line, 1) + record2205, "scontrol lists node n1 twice: look at the comments of the nodes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := parseNodeRecords(tt.text, []string{"n1", "n2"}); err == nil || err.Error() != tt.err {
				t.Errorf("%v, error = %v, want %s", got, err, tt.err)
			}
		})
	}
	got, err := parseNodeRecords(strings.Replace(drained2205, "TEXT", "TEXT\n"+line, 1), []string{"n2"})
	if len(got) != 1 || err != nil {
		t.Errorf("nobody asked for n1: %v, %v", got, err)
	}
}

// fakeControl answers as scontrol does, a node that is unknown among others.
const fakeControl = `echo "$*" >"$HERE/asked"
case $4 in
broken) echo "Unable to contact slurm controller" >&2; exit 1 ;;
*nope*) echo "Node nope not found"; cat "$HERE/answer"; exit 1 ;;
esac
cat "$HERE/answer"`

func control(t *testing.T) Comments {
	t.Helper()
	bin := commands(t, map[string]string{"scontrol": fakeControl})
	if err := os.WriteFile(filepath.Join(bin, "answer"), []byte(allRecords), 0o644); err != nil {
		t.Fatal(err)
	}
	return Comments{Client{Bin: bin}}
}

func TestNodeRecords(t *testing.T) {
	many := make([]string, 20_000)
	for i := range many {
		many[i] = "n1"
	}
	tests := map[string]struct {
		nodes []string
		asked string
		want  int
		err   string
	}{
		"two nodes":                  {[]string{"n1", "n3"}, "--oneliner show node n1,n3", 2, ""},
		"one that slurmctld forgot":  {[]string{"nope", "n1"}, "--oneliner show node nope,n1", 1, ""},
		"more than an argument has":  {append(many, "n2", strings.Repeat("x", maxList)), "--oneliner show node", 2, ""},
		"a slurmctld that is silent": {[]string{"broken"}, "--oneliner show node broken", 0, "Unable to contact slurm controller"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := control(t)
			got, err := c.NodeRecords(t.Context(), tt.nodes)
			if len(got) != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.HasSuffix(err.Error(), tt.err) {
				t.Errorf("%d records, error %v", len(got), err)
			}
			if asked := strings.TrimSpace(c.file(t, "asked")); asked != tt.asked {
				t.Errorf("scontrol was asked %q, want %q", asked, tt.asked)
			}
		})
	}
	c := control(t)
	if got, err := c.AllNodeRecords(t.Context()); len(got) != 5 || err != nil || strings.TrimSpace(c.file(t, "asked")) != "--all --oneliner show node" {
		t.Errorf("all: %v, %v", got, err)
	}
	if got, err := (Comments{Client{Bin: "/nothing"}}).NodeRecords(t.Context(), nil); got != nil || err != nil {
		t.Errorf("no nodes: %v, %v", got, err)
	}
}

// sinfo lists a node once for each of its partitions.
func TestNodeComment(t *testing.T) {
	tests := map[string]struct {
		answer, want, err string
	}{
		"a comment":         {"n1|ask bob Extra=5|MARK\nn1|ask bob Extra=5|MARK\n", "ask bob Extra=5", ""},
		"lines and bars":    {"n1|a|b\nn1|c\n|MARK\n", "a|b\nn1|c\n", ""},
		"no comment":        {"n1|(null)|MARK\n", "", ""},
		"no such node":      {"", "", "comment of node n1: sinfo does not list it: is it in a partition of slurm.conf?"},
		"another node":      {"n2|x|MARK\n", "", "comment of node n1: sinfo does not list it: is it in a partition of slurm.conf?"},
		"one that was cut":  {"n1|ask bob", "", "comment of node n1: sinfo does not list it: is it in a partition of slurm.conf?"},
		"a node's list":     {"n[1-2]|x|MARK\n", "", "comment of node n1: sinfo does not list it: is it in a partition of slurm.conf?"},
		"blanks at the end": {"n1| x |MARK\n", " x ", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseNodeComment(tt.answer, mark, "n1")
			if got != tt.want || (err == nil) != (tt.err == "") || err != nil && "comment of node n1: "+err.Error() != tt.err {
				t.Errorf("comment %q, error %v", got, err)
			}
		})
	}
	c := Comments{Client{Bin: commands(t, map[string]string{"sinfo": `[ "$*" = "--noheader --all --local --Node --nodes=n1 ${*##* }" ] || exit 1; last=${*##* }; echo "n1|ask bob|${last##*|}"`})}}
	if got, err := c.NodeComment(t.Context(), "n1"); got != "ask bob" || err != nil {
		t.Errorf("comment %q, error %v", got, err)
	}
}

func TestSetNodeComment(t *testing.T) {
	c := Comments{Client{Bin: commands(t, map[string]string{"scontrol": `printf '%s\n' "$@" >"$HERE/ordered"`})}}
	err := c.SetNodeComment(t.Context(), "n1", "ask bob |x")
	if want := "update\nnodename=n1\ncomment=ask bob |x\n"; err != nil || c.file(t, "ordered") != want {
		t.Errorf("error %v, scontrol was ordered %q", err, c.file(t, "ordered"))
	}
}
