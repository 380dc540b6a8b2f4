package cxi

import (
	"context"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/cxi/cxitest"
	"github.com/slurm-v/slurm-v/journal"
)

// cassini is what a card of the first generation has (cxi_service(1)).
var cassini = Amounts{PTE: 2048, TXQ: 1024, TGQ: 512, EQ: 2047, CT: 2047, LE: 16384, TLE: 2048, AC: 1022}

// job4217 has 96 cores of the node.
var job4217 = Job{ID: journal.ID{Job: 4217}, UID: 1001, VNIs: []fabric.Tag{1027}, Cores: 96}

// aNode is a libcxi with cards, and its library, which does not pause long.
func aNode(t *testing.T, settings ...string) (*Library, *cxitest.Fake) {
	t.Helper()
	fake := cxitest.New(t, settings...)
	lib, err := Open(fake.Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lib.Close)
	lib.pause = 2 * time.Millisecond
	return lib, fake
}

func devices(t *testing.T, lib *Library) []Device {
	t.Helper()
	cards, err := lib.Devices()
	if err != nil {
		t.Fatal(err)
	}
	return cards
}

// made makes the job's services on all cards.
func made(t *testing.T, lib *Library, job Job) (all []Made) {
	t.Helper()
	for _, card := range devices(t, lib) {
		m, err := lib.Make(card, job)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// seed makes a service that is not this job's.
func seed(t *testing.T, lib *Library, card int, s Service) uint32 {
	t.Helper()
	id, _, err := lib.alloc(devices(t, lib)[card], s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func listed(t *testing.T, lib *Library) []Placed {
	t.Helper()
	all, err := lib.All()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// within is a context for a short retry.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func uidService(uid uint32, vnis ...fabric.Tag) Service {
	return Service{Enabled: true, Members: []Member{{UID, uid}}, VNIs: vnis}
}

func systemService(uid uint32, vnis ...fabric.Tag) Service {
	s := uidService(uid, vnis...)
	s.System = true
	return s
}
