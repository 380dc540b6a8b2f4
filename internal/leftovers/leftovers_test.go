package leftovers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// node is one on which job 35 and job 36 have everything that a job can have, twice where
// kernels and releases of Slurm differ.
func node(t *testing.T) Node {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{
		"proc/7/cgroup":  "5:memory:/slurm_n1/uid_1000/job_35/step_0/task_0\n",
		"proc/7/cmdline": "qemu-system-x86_64\x00-name\x00guest=slurmv-35.0-vm0\x00",
		"proc/8/cgroup":  "0::/system.slice/n1_slurmstepd.scope/job_36/step_batch/user/task_0\n",
		"proc/9/cgroup":  "5:memory:/slurm_n1/uid_1000/job_35/step_3/task_0\n", // the search
		"proc/1/cgroup":  "0::/init.scope\n",
		"proc/6/cgroup":  "0::/site.slice/site-hpc.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0\n",
		"proc/5/cgroup":  "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV501/step_0/user/task_0\n",
		"proc/self/mountinfo": "22 1 0:21 / /run rw - tmpfs x rw\n" +
			"30 22 0:40 / /run/slurmv/n1/jobs/35.0/mnt rw - tmpfs x rw\n31 22 0:41 / /run/slurmv/n1/jobs/36.1 rw - tmpfs x rw\n",
		"dev/shm/slurmv-0123456789abcdef-35.0-0-abc":           "",
		"dev/shm/slurmv-0123456789abcdef-36.0-0-abc":           "",
		"state/images/k/holders/35.0":                          "",
		"state/jobs/35.0/journal":                              "",
		"state/jobs/36.1/journal":                              "",
		"run/jobs/35.0/agent.sock":                             "",
		"sys/fs/cgroup/memory/slurm_n1/uid_1000/job_35/x":      "",
		"sys/fs/cgroup/system.slice/slurmstepd.scope/job_36/x": "",

		"sys/fs/cgroup/site.slice/site-hpc.slice/slurmstepd.scope/sEKNKTV3WPV500/x": "",
		"sys/fs/cgroup/system.slice/slurmstepd.scope/sEKNKTV3WPV501/x":              "",
	}
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// 35 and 36 are z and 10 in base 36.
	return Node{Root: root, State: "/state", Run: "/run", Self: 9, Links: []string{"lo", "eth0", "svbz", "svtz-0", "svb10", "svbzz"},
		IDOf: func(sluid string) uint32 { return map[string]uint32{"sEKNKTV3WPV500": 38}[sluid] }}
}

func TestOf(t *testing.T) {
	tests := map[string]struct {
		job  uint32
		want []string
	}{
		"all that a job has, and nothing of the search": {35, []string{
			"process: 7 qemu-system-x86_64 -name guest=slurmv-35.0-vm0",
			"link: svbz", "link: svtz-0",
			"file: /dev/shm/slurmv-0123456789abcdef-35.0-0-abc", "file: /state/images/k/holders/35.0",
			"directory: /state/jobs/35.0", "directory: /run/jobs/35.0",
			"mount: /run/slurmv/n1/jobs/35.0/mnt",
			"cgroup: /sys/fs/cgroup/memory/slurm_n1/uid_1000/job_35",
		}},
		"a second run, cgroups of version 2": {36, []string{
			"process: 8 ",
			"link: svb10",
			"file: /dev/shm/slurmv-0123456789abcdef-36.0-0-abc",
			"directory: /state/jobs/36.1",
			"mount: /run/slurmv/n1/jobs/36.1",
			"cgroup: /sys/fs/cgroup/system.slice/slurmstepd.scope/job_36",
		}},
		"a job that Slurm calls by its SLUID, in slices of the site": {38, []string{
			"process: 6 ",
			"cgroup: /sys/fs/cgroup/site.slice/site-hpc.slice/slurmstepd.scope/sEKNKTV3WPV500",
		}},
		"a job that has nothing": {37, nil},
		"a part of a number":     {3, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := node(t)
			var got []string
			for _, thing := range n.Of(tt.job) {
				got = append(got, strings.ReplaceAll(thing.String(), n.Root, ""))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("things differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestKinds(t *testing.T) {
	things := []Thing{{"process", "1"}, {"directory", "a"}, {"link", "l"}, {"directory", "b"}, {"process", "2"}}
	if got, want := Kinds(things), "1 link, 2 directories, 2 processes"; got != want {
		t.Errorf("kinds are %q, want %q", got, want)
	}
}

func TestParse(t *testing.T) {
	for _, line := range []string{"process: 7 qemu -name a: b", "cgroup: /x"} {
		if got, ok := Parse(line); !ok || got.String() != line {
			t.Errorf("%q is %v, %v", line, got, ok)
		}
	}
	for _, line := range []string{"looked", "a line of the site's prolog: hello", ""} {
		if got, ok := Parse(line); ok {
			t.Errorf("%q is %v", line, got)
		}
	}
}
