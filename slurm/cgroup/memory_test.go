package cgroup

import (
	"path/filepath"
	"testing"

	"github.com/slurm-v/slurm-v/internal/filetest"
)

func TestOutOfMemory(t *testing.T) {
	const step = "/slurm/uid_1/job_7/step_0"
	const v1 = "5:cpuset:/\n4:cpu,memory:" + step + "\n0::/\n"
	tests := map[string]struct {
		cgroups, file, text string
		want                bool
	}{
		"cgroup v1":          {v1, "memory" + step + "/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", true},
		"cgroup v1, none":    {v1, "memory" + step + "/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n", false},
		"cgroup v1, others'": {v1, "memory/memory.oom_control", "oom_kill 1\n", false},
		"cgroup v2":          {"0::" + step + "\n", step + "/memory.events", "oom 3\noom_kill 2\noom_group_kill 0\n", true},
		"cgroup v2, limit reached and none killed": {"0::" + step + "\n", step + "/memory.events", "oom 3\noom_kill 0\n", false},
		"no memory controller":                     {"5:cpuset:/\n", "x", "", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			filetest.Write(t, filepath.Join(root, "proc/7/cgroup"), tt.cgroups)
			filetest.Write(t, filepath.Join(root, "sys/fs/cgroup", tt.file), tt.text)
			if got := OutOfMemory(root, 7); got != tt.want {
				t.Errorf("out of memory: %v, want %v", got, tt.want)
			}
		})
	}
}
