package oncontroller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/controller"
	"github.com/slurm-v/slurm-v/fabric/ledger"
	"github.com/slurm-v/slurm-v/internal/filetest"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
)

// TestMain lets the test's program be the one that goes on in place of itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "fabric" {
		fmt.Println("began anew:", strings.Join(os.Args[1:], " "), os.Getenv(slurm.EnvCluster))
		if os.Getenv(envSweepOn) == "" { // it was to end
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const envSweepOn = "SLURMV_TEST_SWEEP_ON" // the configuration with which the test's program sweeps

// A process that sweeps for weeks follows a new release and a new configuration: after an hour, here at once, it begins
// anew in place of itself.
func TestSweepsBeginAnew(t *testing.T) {
	if path := os.Getenv(envSweepOn); path != "" {
		t.Fatal(sweepOn(inContext(t.Context()), path, time.Millisecond)) // which does not return
	}
	path := writeSite(t)
	again := exec.Command(os.Args[0], "-test.run=^TestSweepsBeginAnew$")
	again.Env = append(os.Environ(), envSweepOn+"="+path)
	out, err := again.CombinedOutput()
	if want := "began anew: fabric sweep --config " + path + " --until-quiet c\n"; err != nil || string(out) != want {
		t.Errorf("%v, %q, want %q", err, out, want)
	}
}

// It does not begin anew if it was ended, or when nothing is left to do.
func TestSweepsEnd(t *testing.T) {
	path := writeSite(t)
	ended, end := context.WithCancel(t.Context())
	end()
	if err := sweepOn(inContext(ended), path, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("a sweep that was ended: %v", err)
	}
	if err := sweepOn(inContext(t.Context()), path, time.Hour); err != nil {
		t.Errorf("a sweep for nobody: %v", err)
	}
}

func inContext(ctx context.Context) *cobra.Command {
	c := &cobra.Command{}
	c.SetContext(ctx)
	return c
}

// writeSite writes the configuration of a site with a pool, on the cluster c.
func writeSite(t *testing.T) (path string) {
	t.Helper()
	t.Setenv(slurm.EnvCluster, "c")
	dir := t.TempDir()
	path = filepath.Join(dir, "slurmv.toml")
	filetest.Write(t, path, fmt.Sprintf("[fabric]\nstate = %q\nvni.pool = \"1024-1029\"\n", dir))
	return path
}

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
