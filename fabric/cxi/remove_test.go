package cxi

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/fabric"
)

var twoCards = []string{"cxi0", "cxi1"}

func TestRemove(t *testing.T) {
	forever, moment := 20*time.Second, 30*time.Millisecond
	tests := map[string]struct {
		settings []string
		retry    time.Duration
		left     []string // cards on which the service is afterwards
		is       error
		want     string // the error, from its beginning; "" for none
	}{
		"at once":                   {nil, 0, nil, nil, ""},
		"EBUSY three times":         {[]string{"BUSY=3"}, forever, nil, nil, ""},
		"EAGAIN three times":        {[]string{"BUSY=3", "BUSY_ERRNO=11"}, forever, nil, nil, ""},
		"EBUSY on one card":         {[]string{"BUSY=-1", "BUSY_CARD=1"}, moment, []string{"cxi1"}, nil, "remove the CXI services of job 4217.0: job 4217's VNI 1027 is still in use on cxi1"},
		"EBUSY for ever":            {[]string{"BUSY=-1"}, moment, twoCards, nil, "remove the CXI services of job 4217.0: job 4217's VNI 1027 is still in use on cxi0 and cxi1"},
		"EBUSY and no time":         {[]string{"BUSY=1"}, 0, twoCards, nil, "remove the CXI services of job 4217.0: job 4217's VNI 1027 is still in use on cxi0 and cxi1"},
		"EPERM is not tried again":  {[]string{"BUSY=1", "BUSY_ERRNO=1"}, forever, twoCards, unix.EPERM, "remove the CXI services of job 4217.0: destroy CXI service 2 with VNI 1027 on cxi0: operation not permitted"},
		"EINVAL is not tried again": {[]string{"BUSY=1", "BUSY_ERRNO=22"}, forever, twoCards, unix.EINVAL, "remove the CXI services of job 4217.0: destroy CXI service 2 with VNI 1027 on cxi0: invalid argument"},
		"EPERM on one card":         {[]string{"BUSY=1", "BUSY_ERRNO=1", "BUSY_CARD=0"}, forever, []string{"cxi0"}, unix.EPERM, "remove the CXI services of job 4217.0: destroy CXI service 2 with VNI 1027 on cxi0"},
		"gone, whatever was said":   {[]string{"GONE_ERRNO=22"}, 0, nil, nil, ""},
		"said to be gone, and not":  {[]string{"LIES=1"}, forever, twoCards, nil, "remove the CXI services of job 4217.0: CXI service 2 with VNI 1027 is still listed on cxi0 after it was destroyed"},
		"a card that is not listed": {[]string{"UNLISTED=1"}, forever, []string{"cxi1"}, nil, "remove the CXI services of job 4217.0: cxi1 is not among the cards that libcxi can open (cxi0)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			lib, fake := aNode(t, "CARDS=2")
			made(t, lib, job4217)
			fake.Set(tt.settings...)
			began := time.Now()
			err := lib.Remove(within(t, tt.retry), job4217, twoCards)
			if (err == nil) != (tt.want == "") || err != nil && !strings.HasPrefix(err.Error(), tt.want) || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("error = %v\n want %s", err, tt.want)
			}
			if took := time.Since(began); took > forever/2 {
				t.Errorf("it took %v", took)
			}
			fake.Set("UNLISTED=-1")
			if left := cardsOf(ofJob(listed(t, lib), job4217)); !slices.Equal(left, tt.left) {
				t.Errorf("left on %v, want %v", left, tt.left)
			}
		})
	}
}

func cardsOf(services []Placed) (cards []string) {
	for _, s := range services {
		cards = append(cards, s.Card)
	}
	return cards
}

func TestABusyServiceIsTriedUntilTheDeadline(t *testing.T) {
	lib, fake := aNode(t, "CARDS=1")
	made(t, lib, job4217)
	fake.Set("BUSY=-1")
	began := time.Now()
	err := lib.Remove(within(t, time.Second), job4217, nil)
	var busy *BusyError
	if !errors.As(err, &busy) || busy.Job != job4217.ID || len(busy.Left) != 1 || busy.Left[0].Card != "cxi0" {
		t.Errorf("error = %#v", err)
	}
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("it was given up after %v", took)
	}
	// 20 attempts take 40 ms here, so enough of them were made on a slow machine, too.
	fake.Set("BUSY=20")
	if err := lib.Remove(within(t, 0), job4217, nil); err != nil {
		t.Errorf("after many attempts: %v", err)
	}
}

func TestTheLibraryWaitsASecond(t *testing.T) {
	lib, fake := aNode(t, "CARDS=1")
	fresh, err := Open(fake.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	if fresh.pause != time.Second {
		t.Errorf("the pause is %v", fresh.pause)
	}
	made(t, lib, job4217)
	fake.Set("BUSY=1")
	lib.pause = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	var busy *BusyError
	if err := lib.Remove(ctx, job4217, nil); !errors.As(err, &busy) {
		t.Errorf("error = %v", err)
	}
}

func TestWhatIsNotTheJobsStays(t *testing.T) {
	lib, _ := aNode(t, "CARDS=2")
	for _, s := range []Service{
		uidService(1001, 1028),       // the same user's next job
		uidService(1001, 1027, 1028), // more than the job has
		uidService(1002, 1027),       // another user with the job's VNI
		systemService(1001, 1027),    // exactly the job's, but the system's
		{VNIs: []fabric.Tag{1027}},   // everybody's
		{Members: []Member{{GID, 1001}}, VNIs: []fabric.Tag{1027}},
	} {
		seed(t, lib, 1, s)
	}
	before := listed(t, lib)
	made(t, lib, job4217)
	if n := len(listed(t, lib)); n != len(before)+2 {
		t.Fatalf("%d services before, %d with the job's", len(before), n)
	}
	for range 2 { // what is gone already is no error
		if err := lib.Remove(t.Context(), job4217, twoCards); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(before, listed(t, lib)); diff != "" {
			t.Errorf("services differ (-before +after):\n%s", diff)
		}
	}
}

func TestClean(t *testing.T) {
	lib, fake := aNode(t, "CARDS=2")
	pools := []fabric.Pool{{Kind: fabric.VNI, Tags: []fabric.Range{{First: 1024, Last: 2047}}}}
	made(t, lib, job4217)
	seed(t, lib, 0, systemService(0, 1030))
	stays := listed(t, lib)
	seed(t, lib, 0, uidService(1001, 1030))
	seed(t, lib, 1, uidService(1002, 1031))
	strays := Stray(listed(t, lib), pools, []Job{job4217})
	if got := cardsOf(strays); !slices.Equal(got, twoCards) {
		t.Fatalf("strays on %v", got)
	}
	fake.Set("BUSY=-1")
	err := lib.Clean(within(t, 0), strays)
	if want := "remove CXI services: VNIs 1030 and 1031 are still in use on cxi0 and cxi1"; err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
	fake.Set("BUSY=0")
	for range 2 {
		if err := lib.Clean(t.Context(), strays); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(stays, listed(t, lib)); diff != "" {
			t.Errorf("services differ (-want +got):\n%s", diff)
		}
	}
}

func TestCleanLeavesWhatHasChanged(t *testing.T) {
	lib, fake := aNode(t, "CARDS=1")
	seed(t, lib, 0, uidService(1001, 1030))
	old := listed(t, lib)
	fake.Reboot()
	seed(t, lib, 0, uidService(1001, 1031)) // it has the ID of the old one
	before := listed(t, lib)
	if before[1].ID != old[1].ID {
		t.Fatalf("the new service has the ID %d, the old one had %d", before[1].ID, old[1].ID)
	}
	if err := lib.Clean(t.Context(), old); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(before, listed(t, lib)); diff != "" {
		t.Errorf("services differ (-want +got):\n%s", diff)
	}
	if err := lib.Clean(t.Context(), before); err != nil || len(listed(t, lib)) != 1 {
		t.Errorf("the new one: %v, %v", err, listed(t, lib))
	}
}

func TestCleanLeavesTheSystemAlone(t *testing.T) {
	lib, _ := aNode(t, "CARDS=1")
	seed(t, lib, 0, systemService(0, 1030))
	seed(t, lib, 0, uidService(1001, 1031))
	all := listed(t, lib)
	if err := lib.Clean(t.Context(), all); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(all[:2], listed(t, lib)); diff != "" {
		t.Errorf("services differ (-want +got):\n%s", diff)
	}
}
