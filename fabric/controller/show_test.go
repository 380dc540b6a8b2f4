package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/ledger"
	"github.com/slurm-v/slurm-v/journal"
)

func TestWritePools(t *testing.T) {
	states := []ledger.PoolState{{
		Pool: fabric.Pool{Name: "vni", Kind: fabric.VNI, Tags: []fabric.Range{{First: 1024, Last: 1029}}},
		Free: []fabric.Range{{First: 1028, Last: 1029}}, Last: 1027,
		Taken: []ledger.TagState{
			{Tag: 1024, State: ledger.Reserved, Jobs: []journal.ID{id(16, 0)}},
			{Tag: 1025, State: ledger.Releasing, Jobs: []journal.ID{id(17, 0)}, Nodes: []string{"n2", "n10"}},
			{Tag: 1026, State: ledger.Cooling},
			{Tag: 1027, State: ledger.Quarantined, Jobs: []journal.ID{id(18, 0), id(19, 1)}, Why: "two jobs have it"},
		},
	}, {
		Pool:  fabric.Pool{Name: "pkey", Kind: fabric.PKey, Tags: []fabric.Range{{First: 0x1000, Last: 0x1000}}},
		Taken: []ledger.TagState{{Tag: 0x1000, State: ledger.Releasing, Jobs: []journal.ID{id(17, 0)}, Nodes: []string{"n2"}, Manager: true}},
	}}
	const want = `POOL  KIND  TAGS  FREE  RESERVED  RELEASING  COOLING  QUARANTINED
vni   vni   6     2     1         1          1        1
pkey  pkey  1     0     0         1          0        0
VNI 1027 of the jobs 18.0 and 19.1 is in quarantine: two jobs have it; when nothing uses it any more: slurmv fabric release --force 18.0 19.1
node n2 has not confirmed the release of job 17.0's VNI 1025, job 17.0's P_Key 0x9000
node n10 has not confirmed the release of job 17.0's VNI 1025
the subnet manager has not confirmed the release of job 17.0's P_Key 0x9000
`
	var out strings.Builder
	if err := WritePools(&out, PoolRows(states)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWriteEntries(t *testing.T) {
	now := time.Unix(1000, 0)
	entries := []ledger.Entry{
		{
			Reservation: fabric.Reservation{Job: id(16, 0), UID: 5, Grants: []fabric.Grant{
				{Kind: fabric.VNI, Tags: []fabric.Tag{1024, 1025}}, {Kind: fabric.VLAN, Why: fabric.WhyNone},
			}, Collectives: &fabric.Collectives{Addrs: 23, Token: "secret"}},
			State: ledger.Reserved, Began: now.Add(-time.Minute),
		},
		{Reservation: fabric.Reservation{Job: id(17, 1), UID: 6}, State: ledger.Releasing, Nodes: []string{"n1"}, Manager: true, Ended: now.Add(-time.Second)},
	}
	const want = `JOB   USER  STATE      SINCE  TAGS                                                               WAITS FOR
16.0  5     reserved   1m0s   vni 1024 1025, no vlan (none requested), 23 multicast addresses  -
17.1  6     releasing  1s                                                                      n1, subnet manager
`
	var out strings.Builder
	if err := WriteEntries(&out, entries, now); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Join(strings.Fields(want), " "), strings.Join(strings.Fields(out.String()), " ")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
