package ledger

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/fabric"
)

// What Flux's tests of its VNI pool expect (flux-coral2, t/t3000-slingshot-jobtap.t).

func TestTagsAreGivenRoundRobin(t *testing.T) {
	b := newBench(t, 1024, 65535)
	b.gives(id(1), 1024)
	b.gives(id(2), 1025)
	b.gives(id(3), 1026, 1027, 1028, 1029)
	b.pool = vnis(1024, 65535) // configured again
	b.gives(id(4), 1030)
	for job := range uint32(4) {
		b.end(id(job + 1))
		b.confirm(id(job+1), "n1", "n2")
	}
	b.cool()
	b.gives(id(5), 1031) // not the ones that are free again
}

func TestTheRoundBeginsAnewAfterTheLastTag(t *testing.T) {
	b := newBench(t, 1024, 1027)
	b.pool.Tags = []fabric.Range{{First: 11, Last: 12}, {First: 1024, Last: 1025}}
	b.gives(id(1), 11, 12, 1024)
	b.end(id(1))
	b.confirm(id(1), "n1", "n2")
	b.cool()
	b.gives(id(2), 1025, 11)
}

func TestWhyAJobHasNoTags(t *testing.T) {
	for name, tt := range map[string]struct {
		want Want
		why  string
	}{
		"by its owner":   {Want{Why: "disabled by user request"}, "disabled by user request"},
		"by a count":     {Want{Why: "none requested"}, "none requested"},
		"by exhaustion":  {Want{Count: 3}, "3 VNIs wanted, 2 of 2 free"},
		"why it has two": {Want{Count: 2, Why: "none requested"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 1024, 1025)
			b.o.EmptyIfExhausted = true
			tt.want.Pool = b.pool
			r, err := b.l.Reserve(request(id(1), tt.want), b.o, b.now)
			noError(t, err)
			want := fabric.Grant{Pool: "vni", Kind: fabric.VNI, Why: tt.why}
			if tt.why == "" {
				want.Tags = []fabric.Tag{1024, 1025}
			}
			if diff := cmp.Diff([]fabric.Grant{want}, r.Grants); diff != "" {
				t.Errorf("grants (-want +got):\n%s", diff)
			}
			again, err := b.l.Reserve(request(id(1), tt.want), b.o, b.now)
			if diff := cmp.Diff(r, again); diff != "" || err != nil {
				t.Errorf("second call: error %v (-first +second):\n%s", err, diff)
			}
		})
	}
}

// A job goes on without VNIs if the site says so. VFs without VLAN or P_Key would reach other jobs, so a node
// would not start its VMs.
func TestOnlyVNIsAreLeftOut(t *testing.T) {
	for kind, want := range map[fabric.Kind]error{fabric.VNI: nil, fabric.VLAN: ErrExhausted, fabric.PKey: ErrExhausted} {
		t.Run(string(kind), func(t *testing.T) {
			b := newBench(t, 1024, 1025)
			b.o.EmptyIfExhausted, b.pool.Kind = true, kind
			if _, err := b.l.Reserve(request(id(1), Want{Pool: b.pool, Count: 3}), b.o, b.now); !errors.Is(err, want) {
				t.Errorf("error = %v, want %v", err, want)
			}
		})
	}
}

func TestFortyTwoVNIsAreRefused(t *testing.T) {
	b := newBench(t, 1024, 65535)
	_, err := b.reserve(id(1), 42)
	var limit *limitError
	if !errors.As(err, &limit) || !strings.Contains(err.Error(), "42 VNIs wanted; a job can have 0 to 4") {
		t.Errorf("error = %v", err)
	}
	b.gives(id(1), 1024, 1025, 1026, 1027)
}

func TestAnExhaustedPoolGivesNothing(t *testing.T) {
	b := newBench(t, 1024, 1025)
	other := fabric.Pool{Name: "vlan", Kind: fabric.VLAN, Tags: []fabric.Range{{First: 2000, Last: 2000}}}
	_, err := b.l.Reserve(request(id(1), Want{Pool: other, Count: 1}, Want{Pool: b.pool, Count: 3}), b.o, b.now)
	var exhausted *ExhaustedError
	if !errors.As(err, &exhausted) || exhausted.Want != 3 || exhausted.Free != 2 || !strings.Contains(err.Error(), `pool "vni": 3 VNIs wanted, 2 of 2 free`) {
		t.Fatalf("error = %v", err)
	}
	r, err := b.l.Reserve(request(id(2), Want{Pool: other, Count: 1}, Want{Pool: b.pool, Count: 2}), b.o, b.now)
	if err != nil || len(r.Grants) != 2 || len(r.Grants[0].Tags) != 1 {
		t.Errorf("the VLAN that job 1 did not get: %+v, error %v", r.Grants, err)
	}
}

func TestAPoolThatIsMovedUnderAJob(t *testing.T) {
	b := newBench(t, 1024, 1025)
	b.gives(id(1), 1024, 1025)
	b.pool = vnis(1025, 1026)
	b.free(fabric.Range{First: 1026, Last: 1026})
	if got := b.entry(id(1)).Reservation.Tags(fabric.VNI); len(got) != 2 {
		t.Errorf("the job has %v", got)
	}
	b.end(id(1))
	b.confirm(id(1), "n1", "n2")
	b.free(fabric.Range{First: 1026, Last: 1026})
	b.cool()
	b.free(fabric.Range{First: 1025, Last: 1026})
	b.gives(id(2), 1026, 1025)
	b.refuses(id(3)) // 1024 is nobody's, but not of the pool any more
}

func TestTagsOutsideOfTheirPoolAreShown(t *testing.T) {
	b := newBench(t, 1024, 1025)
	b.gives(id(1), 1024, 1025)
	b.pool = vnis(1025, 1026)
	other := vnis(2000, 2001)
	other.Name = "gpu"
	shows := func(want ...State) {
		t.Helper()
		pools, err := b.l.Pools([]fabric.Pool{b.pool, other}, b.o.Cooling, b.now)
		noError(t, err)
		var got []State
		for _, s := range pools[0].Taken {
			got = append(got, s.State)
		}
		if diff := cmp.Diff(want, got); diff != "" || len(pools[1].Taken) > 0 {
			t.Errorf("(-want +got):\n%s; of the other pool: %+v", diff, pools[1].Taken)
		}
	}
	shows(Reserved, Reserved)
	b.end(id(1))
	shows(Releasing, Releasing)
	b.confirm(id(1), "n1", "n2")
	shows(Cooling) // 1025: 1024 is not given again
}

func TestPoolsOfOneKindShareNoTag(t *testing.T) {
	b := newBench(t, 1024, 1024)
	b.gives(id(1), 1024)
	b.pool.Name = "gpu"
	b.refuses(id(2))
}
