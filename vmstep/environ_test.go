package vmstep

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStepEnv(t *testing.T) {
	tests := map[string]struct {
		entry string
		kept  bool
	}{
		"the user's own":               {"FOO=1", true},
		"the path":                     {"PATH=/bin", true},
		"the job":                      {"SLURM_JOB_ID=7", true},
		"the restart count":            {"SLURM_RESTART_COUNT=1", true},
		"the way to Slurm":             {"SLURM_CONF=/etc/slurm.conf", true},
		"the spec":                     {"SLURM_SPANK_SLURMV_SPEC={}", true},
		"the plugin's options":         {"SLURM_SPANK__SLURM_SPANK_OPTION_slurmv_vm_per_node=2", true},
		"the plugin's options, remote": {"_SLURM_SPANK_OPTION_slurmv_vm_per_node=2", true},
		"another plugin's options":     {"_SLURM_SPANK_OPTION_pyxis_container_image=x", false},
		"tasks":                        {"SLURM_NTASKS=8", false},
		"memory":                       {"SLURM_MEM_PER_CPU=100", false},
		"exclusive":                    {"SLURM_EXCLUSIVE=1", false},
		"binding":                      {"SLURM_CPU_BIND=cores", false},
		"an output file":               {"SLURM_STDOUTMODE=x", false},
		"a node":                       {"SLURMD_NODENAME=n1", false},
		"cpus for srun":                {"SRUN_CPUS_PER_TASK=2", false},
		"a PMI of another step":        {"PMI_FD=11", false},
		"what is no variable":          {"=x", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := len(StepEnv([]string{tt.entry})) == 1; got != tt.kept {
				t.Errorf("%s kept: %v, want %v", tt.entry, got, tt.kept)
			}
		})
	}
}

func TestProgramEnv(t *testing.T) {
	env := []string{
		"PATH=/bin", "SLURM_PROCID=3", "SLURM_JOB_ID=7", "PMI_RANK=3", "PMI_FD=11", "TMPDIR=/tmp/job7",
		"HOSTNAME=node1", "SLURM_TASK_PID=99", "SLURM_SPANK_SLURMV_SPEC={}", "_SLURM_SPANK_OPTION_x_y=1",
		"SLURMV_VM=old", "XDG_RUNTIME_DIR=/run/user/1", "OMP_NUM_THREADS=2", "SLURMV_LIBPMIX=/opt/libpmix.so.2",
	}
	want := []string{"PATH=/bin", "SLURM_PROCID=3", "SLURM_JOB_ID=7", "PMI_RANK=3", "OMP_NUM_THREADS=2",
		"SLURMV_LIBPMIX=/opt/libpmix.so.2", "HOSTNAME=vm2", "SLURMV_VM=vm2"}
	if diff := cmp.Diff(want, ProgramEnv(env, "vm2")); diff != "" {
		t.Errorf("environment differs (-want +got):\n%s", diff)
	}
}
