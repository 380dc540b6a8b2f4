package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vmlaunch"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmstep"
)

// slurmstepd gives the agent the umask of the user, who could so take its directories from
// all others, or give its files to them.
func TestLaunchHasItsOwnUmask(t *testing.T) {
	if os.Getenv("SLURMV_PLAY") == "launch" {
		fmt.Println("launch:", runLaunch(t.Context(), "/nonexistent"))
		fmt.Printf("umask: %03o\n", unix.Umask(0))
		return
	}
	for _, umask := range []string{"000", "777"} {
		c := exec.Command("sh", "-c", "umask "+umask+` && exec "$0" -test.run='^TestLaunchHasItsOwnUmask$' -test.v`, os.Args[0])
		c.Env = append(os.Environ(), "SLURMV_PLAY=launch")
		told, status, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer told.Close()
		c.ExtraFiles = []*os.File{status} // descriptor 3
		out, err := c.CombinedOutput()
		status.Close()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if !strings.Contains(string(out), "umask: 022\n") {
			t.Errorf("with the user's umask %s:\n%s", umask, out)
		}
	}
}

// slurmd may have its slurm.conf elsewhere than where Slurm's commands look.
func TestLaunchAsksSlurmAsSlurmdDoes(t *testing.T) {
	t.Setenv("SLURM_CONF", "/x/slurm.conf")
	cfg := config.Default()
	cfg.Slurm.Bin, cfg.Slurm.GRES = t.TempDir(), true
	squeue := "#!/bin/sh\necho \"squeue reads $SLURM_CONF\" >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(cfg.Slurm.Bin, "squeue"), []byte(squeue), 0o755); err != nil {
		t.Fatal(err)
	}
	job := plan.Job{ID: journal.ID{Job: 7}, Node: "n1", Spec: jobspec.Spec{SRIOV: jobspec.SRIOV{VFs: make([]jobspec.VF, 1)}}}
	messages, _ := told(t, func(s *status) {
		_, err := launchForPlugin(t.Context(), cfg, job, s)
		if err == nil || !strings.Contains(err.Error(), "squeue reads /x/slurm.conf") {
			t.Errorf("error = %v", err)
		}
	})
	if len(messages) != 1 || messages[0].Kind != vmstep.KindBackend || string(messages[0].Body) != `{"type":"libvirt"}` {
		t.Errorf("before it asks Slurm, the keeper gets %v", messages)
	}
}

// The keeper goes by the frame, people by the line in Slurm's log.
func TestAFailureIsToldToTheKeeperAndToTheLog(t *testing.T) {
	const running = "node n1: the VMs of job 7 are already running"
	tests := map[string]struct {
		node, log string
		err       error
		want      []vmstep.Failure
	}{
		"a failure": {"n1", "node n1: a b", errors.New("node n1: a\nb"), []vmstep.Failure{{Error: "node n1: a b"}}},
		"another step has the VMs": {"n1", running, fmt.Errorf("node n1: the VMs of job 7 %w", vmlaunch.ErrAlreadyRunning),
			[]vmstep.Failure{{Error: running, Elsewhere: true}}},
		"a node without a name": {"", "x", errors.New("x"), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SLURMV_NODE", tt.node)
			messages, log := told(t, func(s *status) { s.failed(tt.err) })
			if diff := cmp.Diff(tt.want, failures(t, messages)); diff != "" || log != tt.log {
				t.Errorf("the log has %q, the keeper gets (-want +got):\n%s", log, diff)
			}
		})
	}
}

// told returns what the plugin is told on the status pipe: messages for the keeper, and
// an error for the log.
func told(t *testing.T, tell func(*status)) (messages []vmstep.Message, log string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s := &status{w}
	tell(s)
	s.close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	frames := vmstep.Frames{Message: func(m vmstep.Message) { messages = append(messages, m) }}
	for line := range strings.Lines(string(text)) {
		switch word, rest, _ := strings.Cut(line, " "); word {
		case "say":
			_, _ = io.WriteString(&frames, rest)
		case "error":
			log = strings.TrimSpace(rest)
		}
	}
	return messages, log
}

func failures(t *testing.T, messages []vmstep.Message) (failures []vmstep.Failure) {
	t.Helper()
	for _, m := range messages {
		var f vmstep.Failure
		if err := m.Decode(&f); err != nil || m.Kind != vmstep.KindFailed {
			t.Errorf("a message %s: %v", m.Kind, err)
		}
		failures = append(failures, f)
	}
	return failures
}
