package vmstep

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

func TestAwaitClaim(t *testing.T) {
	claim := nodeagent.Claim{Device: 1, Number: 1<<32 + 7}
	granted := nodeagent.ClaimMessage{Claim: &claim}
	frame := func(kind string, value any) string {
		var b bytes.Buffer
		if err := WriteFrame(&b, "n1", kind, value); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	tests := map[string]struct {
		says   string
		want   nodeagent.Claim
		waited int
		err    string
	}{
		"a device at once":    {frame(KindClaim, granted), claim, 0, ""},
		"among other words":   {"a prolog's line\n" + frame(KindClaim, granted) + "more", claim, 0, ""},
		"one that comes late": {frame(KindClaim, nodeagent.ClaimMessage{Waiting: true}) + frame(KindClaim, granted), claim, 1, ""},
		"none without waiting": {frame(KindClaim, nodeagent.ClaimMessage{Busy: true}), nodeagent.Claim{}, 0,
			"every IVShmem device of this job is claimed by another slurm-v-run (--no-wait)"},
		"a refusal": {frame(KindFailed, Failure{Error: "job 7 has no IVShmem devices"}), nodeagent.Claim{}, 0,
			"node n1: job 7 has no IVShmem devices"},
		"a step that cannot be made": {"srun: cluster configuration lacks support for cpu binding\nsrun: error: Unable to create step for job 5: Job step not found\n",
			nodeagent.Claim{}, 0, "Unable to create step for job 5: Job step not found"},
		"a step that is killed": {frame(KindClaim, nodeagent.ClaimMessage{Waiting: true}) + "slurmstepd: error: *** STEP 5.3 ON n1 CANCELLED AT 2026-11-20T18:02:09 ***\n",
			nodeagent.Claim{}, 1, "the step was cancelled"},
		"a step that says nothing": {"", nodeagent.Claim{}, 0, "srun: the step has ended"},
	}
	for name, tt := range tests {
		for how, says := range map[string]io.Reader{"": strings.NewReader(tt.says), ", byte by byte": iotest.OneByteReader(strings.NewReader(tt.says))} {
			t.Run(name+how, func(t *testing.T) {
				waited := 0
				got, err := AwaitClaim(says, func() { waited++ })
				if got != tt.want || waited != tt.waited {
					t.Errorf("claim %v after %d words, want %v after %d", got, waited, tt.want, tt.waited)
				}
				if err == nil && tt.err != "" || err != nil && err.Error() != tt.err {
					t.Errorf("error = %v, want %s", err, tt.err)
				}
			})
		}
	}
}

func TestClaimCommand(t *testing.T) {
	tests := map[string]struct {
		words string
		wait  time.Duration
		want  string
	}{
		"the usual":                  {"./app", 0, "claim"},
		"without waiting":            {"--no-wait ./app", 0, "claim --no-wait"},
		"VMs that come up elsewhere": {"./app", time.Minute, "claim --wait=1m0s"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := Split(strings.Fields(tt.words), noEnv, func() string { return "" })
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(ClaimCommand("/bin/srun", "/libexec/agent", "n1", c, tt.wait), " ")
			if want := " --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist=n1 /libexec/agent " + tt.want; !strings.HasSuffix(got, want) {
				t.Errorf("command %s does not end with %s", got, want)
			}
		})
	}
}

func TestIVShmemEnv(t *testing.T) {
	want := []string{"SLURMV_IVSHMEM=/dev/slurmv/ivshmem3", "SLURMV_IVSHMEM_SIZE=17179869184"}
	if diff := cmp.Diff(want, IVShmemEnv(3, 16<<30)); diff != "" {
		t.Errorf("variables differ (-want +got):\n%s", diff)
	}
}

func TestIVShmemPeers(t *testing.T) {
	tests := map[string]struct{ ranks, want string }{
		"a block":                {"0,1,2,3", "0-3"},
		"a block and another":    {"0,1,2,3,8", "0-3,8"},
		"dealt out in turn":      {"1,3,5", "1,3,5"},
		"two are a range":        {"6,7", "6-7"},
		"alone":                  {"5", "5"},
		"in any order, and more": {"9,2,1,2,10", "1-2,9-10"},
		"no task of Slurm":       {"", ""},
		"no ranks":               {"0,x", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var want []string
			if tt.want != "" {
				want = []string{"SLURMV_IVSHMEM_PEERS=" + tt.want}
			}
			got := IVShmemPeers(func(name string) string {
				if name != "SLURM_GTIDS" {
					t.Errorf("%s was asked", name)
				}
				return tt.ranks
			})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("variable differs (-want +got):\n%s", diff)
			}
		})
	}
}
