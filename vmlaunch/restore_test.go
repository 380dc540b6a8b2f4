package vmlaunch

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/slurm-v/slurm-v/images/template"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/vmlaunch/hypervisor"
)

// Only a template that libvirt cannot restore is spoilt. Any other trouble is the job's.
func TestWhatSpoilsATemplate(t *testing.T) {
	tests := map[string]struct {
		prepare func(*VMs)
		spoilt  bool
	}{
		"its saved state is missing":    {func(*VMs) {}, true},
		"the journal cannot be written": {func(v *VMs) { _ = v.journal.Close() }, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := stateIn(t.TempDir())
			v := aJob(t, cfg, 42, jobspec.IVShmem{})
			v.driver = &hypervisor.Driver{}
			from := template.Template{Dir: filepath.Join(cfg.StateDir("n2"), "templates", "1001", "key")}
			about := filepath.Join(from.Dir, "template.json")
			if err := errors.Join(os.MkdirAll(from.Dir, 0o700), os.WriteFile(about, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			tt.prepare(v)
			w := &warmer{VMs: v, from: &from}
			if err := w.restoreDomain(t.Context(), v.Machines[0]); err == nil {
				t.Error("a VM is restored")
			}
			if _, err := os.Stat(about); os.IsNotExist(err) != tt.spoilt {
				t.Errorf("want spoilt: %v, have %v", tt.spoilt, err)
			}
		})
	}
}

func TestIdentitiesAreUnlike(t *testing.T) {
	seen := map[string]bool{}
	for range 32 {
		id, err := newIdentity("vm0")
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{string(id.Seed), id.MachineID, id.BootID, id.HostKey} {
			if seen[text] || len(text) < 32 {
				t.Errorf("%q came twice, or is too short", text)
			}
			seen[text] = true
		}
	}
}
