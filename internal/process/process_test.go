package process_test

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/internal/play"
	"github.com/slurm-v/slurm-v/internal/process"
)

// When a process is killed, its id may belong to another process already.
func TestAProcessThatIsAnotherIsNotKilled(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	for _, meant := range []bool{false, true} {
		if err := process.Kill(ctx, c.Process.Pid, func() bool { return meant }); err != nil {
			t.Fatal(err)
		}
		if got := play.HasEnded(t, c.Process.Pid); got != meant {
			t.Errorf("it has ended: %v, and was meant: %v", got, meant)
		}
	}
}
