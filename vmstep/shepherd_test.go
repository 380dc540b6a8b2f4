package vmstep

import (
	"os"
	"os/exec"
	"testing"
)

func TestParseStat(t *testing.T) {
	tests := map[string]struct {
		text string
		want process
		bad  bool
	}{
		"a process":          {text: "42 (srun) S 7 42 42 0", want: process{42, 7, "srun"}},
		"a name with spaces": {text: "42 (a) b (c) S 7 42", want: process{42, 7, "a) b (c"}},
		"nothing":            {text: "", bad: true},
		"no parent":          {text: "42 (srun) S", bad: true},
		"no pid":             {text: "x (srun) S 7", bad: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseStat(tt.text)
			if (err != nil) != tt.bad || err == nil && got != tt.want {
				t.Errorf("process = %+v, %v", got, err)
			}
		})
	}
}

// sleeper starts a child that the kernel knows by that name.
func sleeper(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("there is no sleep: install coreutils")
	}
	link := t.TempDir() + "/" + name
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(link, "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

func TestOnlyTheShepherdIsDismissed(t *testing.T) {
	shepherd, other := sleeper(t, "srun"), sleeper(t, "other")
	dismissShepherd(os.Getpid())
	if err := shepherd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the shepherd ended with %v", err)
	}
	alive := false
	for _, p := range childrenOf(os.Getpid()) {
		alive = alive || p.pid == other.Process.Pid
	}
	if !alive {
		t.Error("another child is gone, too")
	}
}
