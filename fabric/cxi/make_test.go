package cxi

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/fabric"
)

func TestAJobHasAServiceOnEachOfFourCards(t *testing.T) {
	lib, _ := aNode(t, "FIRST_IDS=11,11,12,11")
	before := listed(t, lib)
	all := made(t, lib, job4217)
	var got []Placed
	for _, m := range all {
		got = append(got, m.Placed)
		if m.Warning != "" {
			t.Errorf("warning: %s", m.Warning)
		}
	}
	limits := limitsFor(96, cassini)
	for i, id := range []uint32{11, 11, 12, 11} {
		want := Placed{"cxi" + string(rune('0'+i)), Service{ID: id, Enabled: true, Members: []Member{{UID, 1001}}, VNIs: job4217.VNIs, Classes: defaultClasses, Limits: &limits}}
		if diff := cmp.Diff(want, got[i]); diff != "" {
			t.Errorf("service differs (-want +got):\n%s", diff)
		}
	}
	// The cards list the classes by their bits.
	inBits := []fabric.Class{fabric.LowLatency, fabric.BestEffort}
	for i := range got {
		got[i].Classes = inBits
	}
	if diff := cmp.Diff(got, ofJob(listed(t, lib), job4217)); diff != "" {
		t.Errorf("what the cards list differs (-made +listed):\n%s", diff)
	}
	if err := lib.Remove(t.Context(), job4217, []string{"cxi0", "cxi1", "cxi2", "cxi3"}); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(before, listed(t, lib)); diff != "" {
		t.Errorf("services after the job differ (-before +after):\n%s", diff)
	}
}

func TestAServiceThatIsThereIsNotMadeTwice(t *testing.T) {
	lib, _ := aNode(t, "CARDS=1")
	first, second := made(t, lib, job4217), made(t, lib, job4217)
	if first[0].ID != second[0].ID || len(ofJob(listed(t, lib), job4217)) != 1 {
		t.Errorf("services %d and %d were made for one job", first[0].ID, second[0].ID)
	}
}

func TestLimitsLeaveRoomForTheSystem(t *testing.T) {
	lib, fake := aNode(t, "CARDS=1")
	system := Service{System: true, Members: []Member{{UID, 0}}, VNIs: []fabric.Tag{30}, Limits: &Limits{TXQ: {100, 200}, LE: {1000, 2000}}}
	seed(t, lib, 0, system)
	if got := made(t, lib, job4217)[0].Limits; got[TXQ].Max != 1024-100 || got[LE].Max != 16384-1000 {
		t.Errorf("maxima beside what is reserved: %d TXQs, %d LEs", got[TXQ].Max, got[LE].Max)
	}
	if err := lib.Remove(t.Context(), job4217, nil); err != nil {
		t.Fatal(err)
	}
	fake.Set("TXQS_IN_USE=150")
	if got := made(t, lib, job4217)[0].Limits; got[TXQ].Max != 1024-150 {
		t.Errorf("maximum beside what is used: %d TXQs", got[TXQ].Max)
	}
}

func TestACardThatHasLess(t *testing.T) {
	const begin = "job 4217.0 with VNI 1027 reserves less of cxi0 than its cores call for: "
	tests := map[string]struct {
		settings []string
		warning  string
		want     Limits // those that are not 0
	}{
		"some reserved by another job": {nil,
			begin + "64 TXQs of 192, 0 ACs of 192",
			Limits{TXQ: {64, 1024}, AC: {0, 1022}}},
		"no LE pool": {[]string{"LE_POOLS=0"},
			begin + "64 TXQs of 192, 0 ACs of 192, 0 LEs of 1536 (all pools of LEs are taken)",
			Limits{TXQ: {64, 1024}, AC: {0, 1022}, LE: {0, 16384}}},
		"no TLE pool": {[]string{"TLE_POOLS=1"},
			begin + "64 TXQs of 192, 0 ACs of 192, 0 TLEs of 96 (all pools of TLEs are taken)",
			Limits{TXQ: {64, 1024}, AC: {0, 1022}}},
		"no pools at all": {[]string{"LE_POOLS=0", "TLE_POOLS=1"},
			begin + "64 TXQs of 192, 0 ACs of 192, 0 LEs of 1536 (all pools of LEs are taken), 0 TLEs of 96 (all pools of TLEs are taken)",
			Limits{TXQ: {64, 1024}, AC: {0, 1022}, LE: {0, 16384}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			lib, _ := aNode(t, append(tt.settings, "CARDS=1")...)
			other := uidService(1002, 1025)
			other.Limits = &Limits{TXQ: {960, 960}, AC: {1022, 1022}}
			seed(t, lib, 0, other)
			m := made(t, lib, job4217)[0]
			if m.Warning != tt.warning {
				t.Errorf("warning = %q\n want %q", m.Warning, tt.warning)
			}
			got := listed(t, lib)[2].Limits
			for r, want := range tt.want {
				if want.Max > 0 && got[r] != want {
					t.Errorf("%v = %+v, want %+v", Resource(r), got[r], want)
				}
			}
			if diff := cmp.Diff(m.Limits, got); diff != "" {
				t.Errorf("what was made and what is listed differ (-made +listed):\n%s", diff)
			}
		})
	}
}

func TestServicesThatCannotBeMade(t *testing.T) {
	tests := map[string]struct {
		setting string
		is      error
		want    string
	}{
		"ENOSPC for ever": {"ALLOC_ERRNO=28", errShort, "make the CXI service of job 4217.0 with VNI 1027 on cxi0: the card has too few resources, even for less: 0 PTEs of 576, "},
		"EPERM":           {"ALLOC_ERRNO=1", unix.EPERM, "make the CXI service of job 4217.0 with VNI 1027 on cxi0: operation not permitted: only root may"},
		"EINVAL":          {"ALLOC_ERRNO=22", unix.EINVAL, "make the CXI service of job 4217.0 with VNI 1027 on cxi0: invalid argument"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			lib, fake := aNode(t, "CARDS=1", tt.setting)
			_, err := lib.Make(devices(t, lib)[0], job4217)
			if !errors.Is(err, tt.is) || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("error = %v\nwant %s…", err, tt.want)
			}
			if n := len(ofJob(listed(t, lib), job4217)); n != 0 {
				t.Errorf("%d services are left", n)
			}
			fake.Set("ALLOC_ERRNO=0")
			if _, err := lib.Make(devices(t, lib)[0], job4217); err != nil {
				t.Errorf("as soon as it can be made: %v", err)
			}
		})
	}
	t.Run("without VNIs, which would be all VNIs", func(t *testing.T) {
		lib, _ := aNode(t, "CARDS=1")
		if _, err := lib.Make(devices(t, lib)[0], Job{UID: 1001}); err == nil || len(listed(t, lib)) != 1 {
			t.Errorf("error = %v, services %v", err, listed(t, lib))
		}
	})
}
