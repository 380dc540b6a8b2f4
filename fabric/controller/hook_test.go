package controller

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/slurm"
)

// environmentOfProlog is that of PrologSlurmctld for job 7.
func environmentOfProlog() map[string]string {
	return map[string]string{
		slurm.EnvCluster: "c", slurm.EnvJobID: "7", "SLURM_JOB_UID": "1000", "SLURM_JOB_RESTART_COUNT": "0",
		"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_PARTITION": "main", fabric.WishVariable: "vni:1",
	}
}

func TestOnlyJobsWithMulticastAddressesHaveAProcessInTheBackground(t *testing.T) {
	for name, nodes := range map[string]int{"enough nodes": 2, "too few nodes": 3} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			withCollectives(b)
			b.Site.Collectives.MinNodes = nodes
			b.change(func(w *world) { w.Jobs[7] = job{State: "CONFIGURING", Nodes: "n[1-2]"} })
			for key, value := range environmentOfProlog() {
				t.Setenv(key, value)
			}
			cfg := config.Default()
			cfg.Slurm.Bin, cfg.Fabric = b.slurm, b.Site
			cfg.Fabric.State = b.Dir
			managers := func(c *Controller) error {
				c.Fabric = b.Fabric
				return nil
			}
			none := []string{filepath.Join(b.Dir, "none")} // a warning shows that it is to start
			if err := (Script{Config: cfg, Warn: b.Warn, Managers: managers}).Prolog(t.Context(), none); err != nil {
				t.Fatal(err)
			}
			if started := strings.Contains(strings.Join(b.warnings, " "), none[0]); started != (nodes == 2) {
				t.Errorf("a process is to start: %v; %q", started, b.warnings)
			}
		})
	}
}

// Whatever is wrong, slurmctld shows the job's owner only what stands in the job's record.
func TestTheOwnerReadsWhyAJobDoesNotStart(t *testing.T) {
	plain := environmentOfProlog()
	tests := map[string]struct {
		env      map[string]string
		state    string // below the directory of the ledger
		managers error
		want     string
	}{
		"a forged wish":                  {env: map[string]string{fabric.WishVariable: "vni:42"}, want: "vni:42"},
		"slurmctld does not say whose":   {env: map[string]string{"SLURM_JOB_UID": ""}, want: "SLURM_JOB_UID"},
		"slurmctld does not say where":   {env: map[string]string{slurm.EnvCluster: ""}, want: slurm.EnvCluster},
		"the ledger's directory is gone": {state: "nowhere", want: "nowhere is not there"},
		"a token that cannot be read":    {managers: errors.New("UFM's token: no such file"), want: "UFM's token"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.change(func(w *world) { w.Jobs[7] = job{State: "CONFIGURING", Nodes: "n[1-2]", AdminComment: "of the site"} })
			env := maps.Clone(plain)
			maps.Copy(env, tt.env)
			for key, value := range env {
				t.Setenv(key, value)
			}
			cfg := config.Default()
			cfg.Slurm.Bin, cfg.Fabric = b.slurm, b.Site
			cfg.Fabric.State = filepath.Join(b.Dir, tt.state)
			err := Script{Config: cfg, Warn: b.Warn, Managers: func(*Controller) error { return tt.managers }}.Prolog(context.Background(), nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v, want %q", err, tt.want)
			}
			w := b.change(func(*world) {})
			if text := w.Jobs[7].AdminComment; !strings.HasPrefix(text, "of the site "+failureBegin) || !strings.Contains(text, tt.want) {
				t.Errorf("the record says %q", text)
			}
			if len(w.Notified) != 1 || !strings.Contains(w.Notified[0], tt.want) {
				t.Errorf("the owner reads %q", w.Notified)
			}
		})
	}
}
