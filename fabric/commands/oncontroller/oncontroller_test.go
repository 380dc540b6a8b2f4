package oncontroller

import (
	"errors"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/controller"
	"github.com/slurm-v/slurm-v/fabric/ledger"
	"github.com/slurm-v/slurm-v/journal"
)

func TestForceTakesTheRunsThatHaveEndedAndStillHaveTags(t *testing.T) {
	released, waiting, running := journal.ID{Job: 7}, journal.ID{Job: 7, Restart: 1}, journal.ID{Job: 7, Restart: 2}
	tests := map[string]struct {
		runs []journal.ID
		err  error
	}{
		"beside one that only has a session": {[]journal.ID{released, waiting}, nil},
		"beside one that runs":               {[]journal.ID{waiting, running}, nil},
		"and says that the only one runs":    {[]journal.ID{running}, ledger.ErrRunning},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ctl := &controller.Controller{Dir: t.TempDir(), Now: time.Now, Site: config.Default().Fabric}
			l, err := ledger.Open(t.Context(), ctl.Path())
			for _, run := range tt.runs {
				err = errors.Join(err, reserve(l, run))
				if run == running {
					continue
				}
				err = errors.Join(err, l.SetCollectives(run, &fabric.Collectives{Session: "c-7"}), l.End(run, time.Now()))
				if run == released {
					err = errors.Join(err, l.Confirm([]ledger.Confirmation{{Job: run, Node: "n1"}}, time.Now()))
				}
			}
			if err = errors.Join(err, l.Close()); err != nil {
				t.Fatal(err)
			}
			if err := forceJob(t.Context(), ctl, "7"); !errors.Is(err, tt.err) {
				t.Errorf("error = %v, want %v", err, tt.err)
			}
			entries, err := ctl.Entries(t.Context(), 7)
			for _, e := range entries {
				if e.State == ledger.Releasing {
					t.Errorf("job %s waits for %v", e.Reservation.Job, e.Nodes)
				}
			}
			if err != nil || len(entries) != len(tt.runs) {
				t.Errorf("%+v, %v", entries, err)
			}
		})
	}
}

func reserve(l *ledger.Ledger, run journal.ID) error {
	pool := fabric.Pool{Name: "vni", Kind: fabric.VNI, Tags: []fabric.Range{{First: 1024, Last: 1030}}}
	q := ledger.Request{Reservation: fabric.Reservation{Job: run}, Nodes: []string{"n1"}, Wants: []ledger.Want{{Pool: pool, Count: 1}}}
	_, err := l.Reserve(q, ledger.Options{}, time.Now())
	return errors.Join(err, l.Tell(run))
}
