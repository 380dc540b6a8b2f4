package node

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/cxi"
)

// whole are tags of every kind.
func whole() Tags {
	r := reservation()
	r.Grants = append(r.Grants, fabric.Grant{Pool: "pkey", Kind: fabric.PKey, Tags: []fabric.Tag{0x1001}})
	r.Collectives = &fabric.Collectives{Session: "c1-4217", Token: "secret", URL: "https://fm/", Addrs: 4, MinNodes: 2}
	tags := Tags{Reservation: r}
	for i, card := range []string{"cxi0", "cxi1"} {
		tags.Services = append(tags.Services, cxi.Placed{Card: card, Service: cxi.Service{
			ID: uint32(11 + i), Members: []cxi.Member{{Kind: cxi.UID, ID: 1000}}, VNIs: []fabric.Tag{1027, 1028},
			Classes: []fabric.Class{fabric.BestEffort, fabric.LowLatency},
		}})
	}
	return tags
}

func TestTheFileOfVariables(t *testing.T) {
	tests := map[string]struct {
		tags Tags
		want string
	}{
		"every kind of tag": {whole(), `boot B
set SLURMV_FABRIC_JOB=4217
set SLURMV_PKEY=0x9001
set SLURMV_VLAN=2001
set SLURMV_VNIS=1027,1028
set SLINGSHOT_VNIS=1027,1028
set SLINGSHOT_DEVICES=cxi0,cxi1
set SLINGSHOT_SVC_IDS=11,12
set SLINGSHOT_TCS=0x0a
set FI_CXI_COLL_JOB_ID=c1-4217
set FI_CXI_COLL_MCAST_TOKEN=secret
set FI_CXI_COLL_FABRIC_MGR_URL=https://fm/fabric/collectives/multicasts
set FI_CXI_HWCOLL_ADDRS_PER_JOB=4
set FI_CXI_HWCOLL_MIN_NODES=2
step FI_CXI_COLL_JOB_STEP_ID
default UCX_IB_PKEY=0x1001
default MV2_DEFAULT_PKEY=0x1001
default OMPI_MCA_btl_openib_pkey=0x1001
end
`},
		"a reservation without tags": {Tags{Reservation: fabric.Reservation{Job: id}}, `boot B
set SLURMV_FABRIC_JOB=4217
clear SLURMV_VLAN
clear SLURMV_PKEY
clear SLURMV_VNIS
clear SLINGSHOT_VNIS
clear SLINGSHOT_DEVICES
clear SLINGSHOT_SVC_IDS
clear SLINGSHOT_TCS
clear FI_CXI_COLL_JOB_ID
clear FI_CXI_COLL_JOB_STEP_ID
clear FI_CXI_COLL_MCAST_TOKEN
clear FI_CXI_COLL_FABRIC_MGR_URL
clear FI_CXI_HWCOLL_ADDRS_PER_JOB
clear FI_CXI_HWCOLL_MIN_NODES
end
`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.tags.file("B")); diff != "" {
				t.Errorf("the file differs (-want +got):\n%s", diff)
			}
		})
	}
	if text := (Tags{}).file("B"); strings.Contains(text, "set ") || !strings.Contains(text, "clear SLURMV_FABRIC_JOB\n") {
		t.Errorf("without a reservation: %s", text)
	}
}

// The plugin's list in C is what a job inside of another one does not inherit.
func TestThePluginKnowsAllVariables(t *testing.T) {
	source, err := os.ReadFile("../../spank/submit.c")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?s)void forget_outer_tags\(void\)\n\{.*?names\[\] = \{(.*?)\};`).FindSubmatch(source)
	if list == nil {
		t.Fatal("spank/submit.c has no list of variables in forget_outer_tags")
	}
	var got []string
	for _, name := range regexp.MustCompile(`"(\w+)"`).FindAllSubmatch(list[1], -1) {
		got = append(got, string(name[1]))
	}
	if diff := cmp.Diff(slices.Concat(names, pkeyDefaults), got); diff != "" {
		t.Errorf("the names in spank/submit.c differ (-here +there):\n%s", diff)
	}
}

func TestAProgramInAVMHasTheGuestsDevices(t *testing.T) {
	env := []string{"HOME=/h", "SLURM_STEP_ID=5", "SLINGSHOT_DEVICES=cxi0,cxi1", "SLURMV_VLAN=9", "MV2_DEFAULT_PKEY=0x7fff"}
	got := whole().ForGuest(env, []GuestCard{{Guest: "cxi0", Card: "cxi1"}})
	for _, entry := range []string{"HOME=/h", "SLINGSHOT_DEVICES=cxi0", "SLINGSHOT_SVC_IDS=12", "SLURMV_VLAN=2001", "SLURMV_PKEY=0x9001",
		"FI_CXI_COLL_JOB_STEP_ID=5", "MV2_DEFAULT_PKEY=0x7fff", "UCX_IB_PKEY=0x1001"} {
		if !slices.Contains(got, entry) {
			t.Errorf("%s is missing in %q", entry, got)
		}
	}
	for _, name := range []string{"SLINGSHOT_DEVICES=", "SLURMV_VLAN=", "MV2_DEFAULT_PKEY="} {
		if n := count(got, name); n != 1 {
			t.Errorf("%s is there %d times in %q", name, n, got)
		}
	}
	if got := whole().ForGuest(env, nil); count(got, "SLINGSHOT_") != 0 {
		t.Errorf("a VM without Slingshot has %q", got)
	}
	if got := (Tags{}).ForGuest(env, nil); !slices.Equal(got, []string{"HOME=/h", "SLURM_STEP_ID=5", "MV2_DEFAULT_PKEY=0x7fff"}) {
		t.Errorf("a job without tags has %q", got)
	}
}

func count(env []string, prefix string) (n int) {
	for _, entry := range env {
		if strings.HasPrefix(entry, prefix) {
			n++
		}
	}
	return n
}
