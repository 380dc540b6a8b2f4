package cgroup

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/internal/filetest"
)

func TestCPUs(t *testing.T) {
	const v1, v2 = "/slurm_n1/uid_6001/job_42/step_0", "/system.slice/n1_slurmstepd.scope/job_42/step_0/user/task_0"
	want := []int{1, 2, 5}
	tests := map[string]struct {
		cgroups string
		files   map[string]string // below /sys/fs/cgroup
		want    []int             // nil if an error is expected
	}{
		"cgroup v1": {"5:memory:" + v1 + "\n4:cpuset:" + v1 + "\n0::/\n",
			map[string]string{"cpuset" + v1 + "/cpuset.cpus": "1-2,5\n"}, want},
		"cgroup v1 without ConstrainCores": {"5:memory:" + v1 + "\n4:cpuset:/\n0::/\n",
			map[string]string{"cpuset/cpuset.cpus": "0-7\n"}, nil},
		"cgroup v1 in somebody's own cpuset": {"4:cpuset:/containers/a\n",
			map[string]string{"cpuset/containers/a/cpuset.cpus": "1-2,5\n"}, nil},
		"cgroup v2": {"0::" + v2 + "\n", map[string]string{
			filepath.Join(v2, "cpuset.cpus.effective"): "1-2,5\n", filepath.Join(v2, "cpuset.cpus"): "\n",
			filepath.Join(v2, "../../../cpuset.cpus"): "1-2,5\n",
		}, want},
		"cgroup v2 without controller at the end": {"0::" + v2 + "\n", map[string]string{
			filepath.Join(v2, "../../../cpuset.cpus"): "1-2,5\n", filepath.Join(v2, "../../../cpuset.cpus.effective"): "1-2,5\n",
		}, want},
		"cgroup v2 without ConstrainCores": {"0::" + v2 + "\n", map[string]string{
			filepath.Join(v2, "cpuset.cpus.effective"): "0-7\n", filepath.Join(v2, "cpuset.cpus"): "\n",
			"/system.slice/cpuset.cpus": "0-7\n", "/system.slice/cpuset.cpus.effective": "0-7\n",
		}, nil},
		"no job": {"4:cpuset:/\n0::/user.slice\n", nil, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			filetest.Write(t, filepath.Join(root, "proc/7/cgroup"), tt.cgroups)
			for file, text := range tt.files {
				filetest.Write(t, filepath.Join(root, "sys/fs/cgroup", file), text)
			}
			got, err := CPUs(root, 7)
			if diff := cmp.Diff(tt.want, got); diff != "" || (err == nil) != (tt.want != nil) {
				t.Errorf("%v, CPUs differ (-want +got):\n%s", err, diff)
			}
		})
	}
}
