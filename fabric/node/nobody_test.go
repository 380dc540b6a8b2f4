package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/filetest"
	"github.com/slurm-v/slurm-v/journal"
)

func TestJobsWithoutTagsLoseTheVariables(t *testing.T) {
	boot, _ := journal.BootID()
	tests := map[string]struct {
		before, switchType string
		slingshot          bool // its variables are cleared
	}{
		"at first":                         {"", "(null)", true},
		"after a boot":                     {"boot x\nend\n", "(null)", true},
		"where Slurm gives steps the VNIs": {"", "switch/hpe_slingshot", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			path := filepath.Join(d.records.dir, "environment")
			if tt.before != "" {
				filetest.Write(t, path, tt.before)
			}
			d.set("switch", tt.switchType)
			for range 2 {
				if _, err := d.Clean(t.Context(), Cleaning{}, nil, nothingLeft); err != nil {
					t.Fatal(err)
				}
				text, _ := os.ReadFile(path)
				if !strings.HasPrefix(string(text), "boot "+boot+"\n") || !strings.HasSuffix(string(text), "end\n") || !strings.Contains(string(text), "clear SLURMV_VLAN\n") {
					t.Errorf("the file has %s", text)
				}
				if got := strings.Contains(string(text), "clear SLINGSHOT_VNIS\n"); got != tt.slingshot || strings.Contains(string(text), "SLINGSHOT_") != tt.slingshot {
					t.Errorf("the file has %s", text)
				}
				d.set("switch", "switch/other") // it is not asked again
			}
			d.cfg = config.Default().Fabric
			if _, err := d.Clean(t.Context(), Cleaning{}, nil, nothingLeft); err != nil || d.has("node/fabric/environment") {
				t.Errorf("without pools: %v", err)
			}
		})
	}
}
