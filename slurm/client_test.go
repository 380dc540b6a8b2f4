package slurm

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/slurm-v/slurm-v/internal/program"
)

// The caller's squeue must not run, neither by PATH nor by a name without directory.
func TestSlurmsCommandsAreNotTheCallers(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "squeue"), []byte("#!/bin/sh\necho \"the caller's\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	if out, err := exec.Command("squeue").Output(); err != nil || string(out) != "the caller's\n" {
		t.Fatalf("squeue by PATH: %q, %v", out, err)
	}
	if got, err := (Client{}).find("squeue"); err == nil && (filepath.Dir(got) == dir || !filepath.IsAbs(got)) {
		t.Errorf("squeue is %s", got)
	}
	if got, err := (Client{Bin: dir}).Run(t.Context(), "squeue"); err != nil || got != "the caller's\n" {
		t.Errorf("squeue of the site's directory: %q, %v", got, err)
	}
}

// The caller's SLURM_CONF could name a slurmctld of the caller's.
func TestRootTellsSlurmNothingOfTheCallers(t *testing.T) {
	t.Setenv("SLURM_CONF", "/evil")
	bin := commands(t, map[string]string{"squeue": `env -u PWD -u OLDPWD -u SHLVL -u _ -u HERE`})
	if got, err := (Client{Bin: bin}).Run(t.Context(), "squeue"); err != nil || got != "PATH="+program.Path+"\n" {
		t.Errorf("squeue has the environment %q, %v", got, err)
	}
	got, err := Client{Bin: bin, Env: os.Environ()}.Run(t.Context(), "squeue")
	if err != nil || !strings.Contains(got, "SLURM_CONF=/evil\n") {
		t.Errorf("squeue for an administrator has the environment %q, %v", got, err)
	}
}

// The command tries again what failed, as libmunge does, whether or not this process ignores SIGPIPE itself.
func TestABrokenPipeEndsNoCommand(t *testing.T) {
	triesAgain(t)
	signal.Ignore(syscall.SIGPIPE)
	defer signal.Reset(syscall.SIGPIPE)
	triesAgain(t)
}

func triesAgain(t *testing.T) {
	t.Helper()
	bin := commands(t, map[string]string{"squeue": `kill -s PIPE $$; echo again "$@"`})
	for _, client := range []Client{{Bin: bin}, User([]string{"PATH=" + bin})} {
		t.Setenv("PATH", bin)
		if got, err := client.Run(t.Context(), "squeue", "a b", "*"); err != nil || got != "again a b *\n" {
			t.Errorf("squeue printed %q, %v", got, err)
		}
	}
}

func TestUser(t *testing.T) {
	t.Setenv("PATH", commands(t, map[string]string{"squeue": `env`})+":"+os.Getenv("PATH"))
	got, err := User([]string{"SQUEUE_FORMAT=%i", "SACCT_FORMAT=x", "SLURM_TIME_FORMAT=relative", "SLURM_CONF=/mine"}).Run(t.Context(), "squeue")
	if err != nil || !strings.Contains(got, "SLURM_CONF=/mine\n") || !strings.Contains(got, "SLURM_TIME_FORMAT=%s\n") ||
		strings.Contains(got, "_FORMAT=x") || strings.Contains(got, "SQUEUE") || strings.Contains(got, "relative") {
		t.Errorf("squeue has the environment %q, %v", got, err)
	}
}

func TestErrors(t *testing.T) {
	bin := commands(t, map[string]string{
		"gone":   `echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1`,
		"silent": `exit 3`,
	})
	t.Setenv("PATH", bin)
	root, user := Client{Bin: bin}, User(nil)
	tests := map[string]struct {
		client  Client
		command string
		want    string
		unknown bool
	}{
		"of a user's command":          {user, "gone", "gone: slurm_load_jobs error: Invalid job id specified", true},
		"of root's":                    {root, "gone", "gone -x: exit status 1: slurm_load_jobs error: Invalid job id specified", true},
		"of one that says nothing":     {user, "silent", "silent: exit status 3", false},
		"of root's that says nothing":  {root, "silent", "silent -x: exit status 3", false},
		"a command that is not there":  {user, "none", "none is not in PATH: load the module of your site's Slurm, or add its bin directory", false},
		"a path where there is none":   {user, "/none/slurmv-agent", "/none/slurmv-agent: exec: \"/none/slurmv-agent\": stat /none/slurmv-agent: no such file or directory", false},
		"one of root's that is absent": {root, "none-slurmv", "none-slurmv is in none of " + bin + ", " + strings.ReplaceAll(program.Path, ":", ", ") + "; where Slurm is installed elsewhere, say so by bin in [slurm] of slurmv.toml", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := tt.client.Run(t.Context(), tt.command, "-x")
			if err == nil || err.Error() != tt.want || errors.Is(err, ErrUnknownJob) != tt.unknown {
				t.Errorf("error = %v, want %s", err, tt.want)
			}
		})
	}
}
