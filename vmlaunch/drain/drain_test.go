package drain

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmlaunch"
)

func TestOnlyWhatHarmsOthersDrains(t *testing.T) {
	files, vm := fmt.Errorf("job 7.0: %w: a directory", vmlaunch.ErrFiles), errors.New("a VM has not ended")
	tests := map[string]struct {
		failed []error
		want   bool
	}{
		"nothing":            {nil, false},
		"files":              {[]error{files, files}, false},
		"a VM":               {[]error{vm}, true},
		"files and a VM":     {[]error{files, vm}, true},
		"what is stuck":      {[]error{errors.New("it did not end in time")}, true},
		"files of two tries": {[]error{fmt.Errorf("node n1: %w", files)}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := must(tt.failed); got != tt.want {
				t.Errorf("drain = %v", got)
			}
		})
	}
}

// scontrolSays makes a client whose scontrol prints the line about a node, and what was
// told to it last.
func scontrolSays(t *testing.T, line string) (c slurm.Client, told func() string) {
	t.Helper()
	bin := t.TempDir()
	log := filepath.Join(bin, "told")
	script := "#!/bin/sh\nif test \"$2\" = show; then echo '" + line + "'; else echo \"$*\" > '" + log + "'; fi\n"
	if err := os.WriteFile(filepath.Join(bin, "scontrol"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return slurm.Client{Bin: bin}, func() string {
		text, _ := os.ReadFile(log)
		return string(text)
	}
}

func TestDrainAndResume(t *testing.T) {
	c, told := scontrolSays(t, "NodeName=n1 State=IDLE+DRAIN ThreadsPerCore=1 Reason=slurm-v: job 7 left something [root@2026-01-02]")
	if err := If(t.Context(), c, "n1", 7, []error{vmlaunch.ErrFiles}); err != nil || told() != "" {
		t.Errorf("for files: %q, %v", told(), err)
	}
	err := If(t.Context(), c, "n1", 7, []error{errors.New("a VM")})
	if want := "update nodename=n1 state=drain reason=slurm-v: job 7 left something; see 'slurmv clean --node-name n1'\n"; err != nil || told() != want {
		t.Errorf("for a VM: %q, %v; want %q", told(), err, want)
	}
	if err := Resume(t.Context(), c, "n1"); err != nil || told() != "update nodename=n1 state=resume\n" {
		t.Errorf("clean: %q, %v", told(), err)
	}
	const why = "job 7's VNI 1027 is still in use on cxi1"
	c, told = scontrolSays(t, "NodeName=n1 State=IDLE+DRAIN ThreadsPerCore=1 Reason=slurm-v: job 7 left something [root@2026-01-02]")
	if err := Over(t.Context(), c, "n1", why); err != nil || told() != "" {
		t.Errorf("drained for something else of ours: %q, %v", told(), err)
	}
	if err := For(t.Context(), c, "n1", "x"); err != nil || told() != "update nodename=n1 state=drain reason=slurm-v: x\n" {
		t.Errorf("for x: %q, %v", told(), err)
	}
	c, told = scontrolSays(t, "NodeName=n1 State=IDLE+DRAIN ThreadsPerCore=1 Reason=slurm-v: x [root@2026-01-02]")
	if err := Over(t.Context(), c, "n1", "x"); err != nil || told() != "update nodename=n1 state=resume\n" {
		t.Errorf("x is over: %q, %v", told(), err)
	}
	others, told := scontrolSays(t, "NodeName=n1 State=IDLE+DRAIN ThreadsPerCore=1 Reason=bad disk [root@2026-01-02]")
	if err := Resume(t.Context(), others, "n1"); err != nil || told() != "" {
		t.Errorf("drained by somebody else: %q, %v", told(), err)
	}
}
