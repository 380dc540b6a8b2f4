package clean

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
)

// A cloud that cannot be cleaned is a warning, after the node has been resumed. What is left
// there is no fault of this node.
func TestCleanOfANodeWhoseCloudIsAway(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "scontrol", 0o755, "#!/bin/sh\nif test \"$2\" = show; then echo 'NodeName=n1 State=IDLE+DRAIN Reason=slurm-v: job 7 left something [root@now]'; else echo \"$*\" >> "+dir+"/told; fi\n")
	write(t, dir, "squeue", 0o755, "#!/bin/sh\n")
	conf := write(t, dir, "slurmv.toml", 0o600, strings.NewReplacer("DIR", dir).Replace(`
[paths]
state = "DIR/state"
run = "DIR/run"
[slurm]
bin = "DIR"
[backend]
type = "openstack"
clouds_file = "DIR/none.yaml"
[network.default]
type = "neutron"
neutron = "guests"
`))
	cfg, err := config.Load(conf)
	if err != nil {
		t.Fatal(err)
	}
	var words strings.Builder
	node := Node{Config: cfg, Client: slurm.Client{Bin: dir}, Name: "n1", Out: io.Discard, Words: &words}
	if err := node.All(t.Context()); err != nil {
		t.Error(err)
	}
	if !strings.HasPrefix(words.String(), "warning: something of ended jobs may be left in OpenStack: ") || !strings.Contains(words.String(), "none.yaml") {
		t.Errorf("it says %q", words.String())
	}
	told, _ := os.ReadFile(filepath.Join(dir, "told"))
	if !strings.Contains(strings.ToLower(string(told)), "state=resume") {
		t.Errorf("scontrol was told %q", told)
	}
}

// A clean that has to end says that something is left. The next one finds it.
func TestCleanThatIsNotDoneInTime(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "scontrol", 0o755, "#!/bin/sh\n")
	write(t, dir, "squeue", 0o755, "#!/bin/sh\n")
	cfg := config.Default()
	cfg.Paths.State, cfg.Paths.Run = filepath.Join(dir, "state"), filepath.Join(dir, "run")
	j, err := journal.Create(cfg.StateDir("n1"), journal.ID{Job: 7}, journal.Header{Node: "n1"})
	if err := errors.Join(err, j.Close()); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	node := Node{Config: cfg, Client: slurm.Client{Bin: dir}, Name: "n1", Out: &said, Words: io.Discard}
	over, end := context.WithCancelCause(t.Context())
	end(errors.New("a minute has passed"))
	if err := node.all(over); err == nil || !strings.HasPrefix(err.Error(), "a minute has passed: ") || said.Len() > 0 {
		t.Errorf("%q, %v", said.String(), err)
	}
	if err := node.All(t.Context()); err != nil || said.String() != "reclaimed job 7.0\n" {
		t.Errorf("%q, %v", said.String(), err)
	}
}

// slurmd kills a health check that takes long. Nobody kills a clean by hand.
func TestAHealthCheckEnds(t *testing.T) {
	for parent, want := range map[string]bool{"slurmd": true, "bash": false} {
		ctx, cancel := inTime(t.Context(), startedBy(t, parent))
		defer cancel()
		if _, ends := ctx.Deadline(); ends != want {
			t.Errorf("started by %s, it has an end: %v", parent, ends)
		}
	}
}

func write(t *testing.T, dir, name string, mode os.FileMode, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}
