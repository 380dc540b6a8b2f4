package drain

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

// on is what scontrol prints of a node with this state and reason.
func on(state, reason string) string {
	if reason != "" {
		reason = " Reason=" + reason + " [root@2026-01-02]"
	}
	return "NodeName=n1 State=" + state + " ThreadsPerCore=1" + reason
}

func TestDrainAndResume(t *testing.T) {
	const (
		left    = "slurm-v: job 7 left something; see 'slurmv clean --node-name n1'"
		leftNow = "update nodename=n1 state=drain reason=" + left + "\n"
		xNow    = "update nodename=n1 state=drain reason=slurm-v: x\n"
		resume  = "update nodename=n1 state=resume\n"
	)
	drainIf := func(c slurm.Client) error { return If(t.Context(), c, "n1", 7, []error{errors.New("a VM")}) }
	drainFor := func(c slurm.Client) error {
		drained, err := For(t.Context(), c, "n1", "x")
		if !drained {
			return errors.Join(err, errStays)
		}
		return err
	}
	over := func(c slurm.Client) error { return Over(t.Context(), c, "n1", "x") }
	clean := func(c slurm.Client) error { return Resume(t.Context(), c, "n1") }
	tests := map[string]struct {
		do   func(slurm.Client) error
		node string
		told string
		err  error
	}{
		"files drain nothing": {func(c slurm.Client) error { return If(t.Context(), c, "n1", 7, []error{vmlaunch.ErrFiles}) }, on("IDLE", ""), "", nil},
		"a VM drains":         {drainIf, on("IDLE", ""), leftNow, nil},
		"the cloud drains": {func(c slurm.Client) error {
			return If(t.Context(), c, "n1", 7, []error{fmt.Errorf("node n1: %w: nova is away", vmlaunch.ErrCloud)})
		}, on("IDLE", ""), strings.Replace(leftNow, "something;", "something in OpenStack;", 1), nil},
		"a VM replaces a reason of ours":             {drainIf, on("IDLE+DRAIN", "slurm-v: x"), leftNow, nil},
		"a VM leaves an administrator's reason":      {drainIf, on("IDLE+DRAIN", "bad disk"), "", nil},
		"a service drains":                           {drainFor, on("MIXED", ""), xNow, nil},
		"a service drains again":                     {drainFor, on("IDLE+DRAIN", "slurm-v: x"), xNow, nil},
		"a service leaves an administrator's reason": {drainFor, on("DOWN+DRAIN", "bad disk"), "", errStays},
		"a service leaves that of a VM":              {drainFor, on("IDLE+DRAIN", "slurm-v: job 9 left something"), "", errStays},
		"its end resumes":                            {over, on("IDLE+DRAIN", "slurm-v: x"), resume, nil},
		"its end leaves something else of ours":      {over, on("IDLE+DRAIN", "slurm-v: job 7 left something"), "", nil},
		"a clean node resumes":                       {clean, on("IDLE+DRAIN", "slurm-v: job 7 left something"), resume, nil},
		"what somebody else drained stays":           {clean, on("IDLE+DRAIN", "bad disk"), "", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, told := scontrolSays(t, strings.ReplaceAll(tt.node, "'", "'\\''"))
			if err := tt.do(c); !errors.Is(err, tt.err) || told() != tt.told {
				t.Errorf("error = %v; scontrol was told %q, want %q", err, told(), tt.told)
			}
		})
	}
}

// errStays stands for For's answer that the node is not drained for this reason.
var errStays = errors.New("the node keeps its reason")
