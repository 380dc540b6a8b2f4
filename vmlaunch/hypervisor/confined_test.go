package hypervisor

import (
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/internal/owner"
)

// wellConfined is what the kernel says of a QEMU that libvirt 9.0 has started, shortened.
const wellConfined = `Name:	qemu-system-x86
Umask:	0002
TracerPid:	0
Uid:	6001	6001	6001	6001
Gid:	6001	6001	6001	6001
Groups:	6001 6002 
Threads:	4
CapInh:	0000000000000000
CapPrm:	0000000000000000
CapEff:	0000000000000000
CapBnd:	000001ffffffffff
CapAmb:	0000000000000000
NoNewPrivs:	1
Seccomp:	2
Seccomp_filters:	1
`

func TestCheckCgroups(t *testing.T) {
	const own = "9:memory:/slurm_n1/uid_6001/job_7/step_4\n1:name=systemd:/\n0::/\n"
	tests := map[string]struct{ its, want string }{
		"in the step":                {own, ""},
		"in more than the step":      {"12:rdma:/\n" + own, ""},
		"taken over by machined":     {strings.Replace(own, "1:name=systemd:/", "1:name=systemd:/machine.slice/machine-qemu.scope", 1), "QEMU is not in the agent's cgroup 1:name=systemd:/: "},
		"outside of the job's limit": {strings.Replace(own, "/slurm_n1/uid_6001/job_7/step_4", "/machine", 1), "QEMU is not in the agent's cgroup 9:memory:/slurm_n1/uid_6001/job_7/step_4: "},
		"above the step":             {strings.Replace(own, "/step_4", "", 1), "QEMU is not in the agent's cgroup 9:memory:"},
		"nowhere":                    {"", "QEMU is not in the agent's cgroup 9:memory:"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := checkCgroups(tt.its, own)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)) {
				t.Errorf("error = %v; want %s…", err, tt.want)
			}
		})
	}
}

func TestCheckConfined(t *testing.T) {
	as := owner.Owner{Name: "alice", UID: 6001, GID: 6001, Groups: []owner.Group{{Name: "alice", GID: 6001}, {Name: "physics", GID: 6002}, {Name: "chess", GID: 6003}}}
	tests := map[string]struct{ is, instead, want string }{
		"as it should be":                       {"", "", ""},
		"groups in another order":               {"6001 6002", "6003 6002 6001", ""},
		"no groups":                             {"6001 6002", "", ""},
		"root":                                  {"Uid:\t6001\t6001\t6001\t6001", "Uid:\t0\t0\t0\t0", "QEMU runs with uid 0 0 0 0 instead of 6001"},
		"root in one of four":                   {"Uid:\t6001\t6001\t6001\t6001", "Uid:\t6001\t6001\t0\t6001", "QEMU runs with uid 6001 6001 0 6001"},
		"another group":                         {"Gid:\t6001\t6001\t6001\t6001", "Gid:\t0\t0\t0\t0", "QEMU runs with gid 0 0 0 0 instead of 6001"},
		"another group in one of four":          {"Gid:\t6001\t6001\t6001\t6001", "Gid:\t6001\t6001\t6001\t0", "QEMU runs with gid 6001 6001 6001 0"},
		"a group of root's":                     {"6001 6002", "6001 0 6002", "QEMU has groups that its owner alice is not in: 0"},
		"a group that is none":                  {"6001 6002", "6001 x", "QEMU has groups that its owner alice is not in: x"},
		"inherited capabilities":                {"CapInh:\t0000000000000000", "CapInh:\t0000000000000001", "QEMU has capabilities, CapInh 0000000000000001"},
		"permitted capabilities":                {"CapPrm:\t0000000000000000", "CapPrm:\t000001ffffffffff", "QEMU has capabilities, CapPrm 000001ffffffffff"},
		"effective capabilities":                {"CapEff:\t0000000000000000", "CapEff:\t0000000000001000", "QEMU has capabilities, CapEff 0000000000001000"},
		"ambient capabilities":                  {"CapAmb:\t0000000000000000", "CapAmb:\t0000000000000400", "QEMU has capabilities, CapAmb 0000000000000400"},
		"no word of capabilities":               {"CapEff:\t0000000000000000\n", "", "QEMU has capabilities, CapEff unknown"},
		"no filter":                             {"Seccomp:\t2", "Seccomp:\t0", "QEMU runs without a filter of its system calls (Seccomp: 0): install a QEMU that was built with seccomp"},
		"the strict filter, which is no QEMU's": {"Seccomp:\t2", "Seccomp:\t1", "QEMU runs without a filter"},
		"a kernel without filters":              {"Seccomp:\t2\n", "", "QEMU runs without a filter of its system calls (Seccomp: unknown)"},
		"new privileges":                        {"NoNewPrivs:\t1", "NoNewPrivs:\t0", "QEMU may gain privileges by a program that it starts (NoNewPrivs: 0)"},
		"nothing at all":                        {wellConfined, "", "QEMU runs with uid unknown instead of 6001"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(wellConfined, tt.is) {
				t.Fatalf("the status has no %q", tt.is)
			}
			err := checkConfined(strings.Replace(wellConfined, tt.is, tt.instead, 1), as)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)) {
				t.Errorf("error = %v; want %s…", err, tt.want)
			}
		})
	}
}
