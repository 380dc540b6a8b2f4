package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The contexts of a plugin, as numbered in slurm/spank.h.
const (
	srun      = "1"
	stepd     = "2"
	sbatch    = "3"
	slurmd    = "4"
	jobScript = "5"
)

var shimSources = []string{"shim.c", "submit.c", "node.c", "fabric.c", "agent.c"}

var cleanUp = func() error { return nil }

// lab is the directory of the built shim, of a stand-in for libslurmv.so beside
// it, and of the host, a program that stands for Slurm.
var lab = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "slurmv-shim")
	if err != nil {
		return "", err
	}
	cleanUp = func() error { return os.RemoveAll(dir) }
	return dir, errors.Join(
		compileShim(filepath.Join(dir, "slurmv.so")),
		compileShim(filepath.Join(dir, impatient), "-DGRACE_MS=200"),
		compile("-fPIC", "-shared", "-o", filepath.Join(dir, "libslurmv.so"), "testdata/checker.c"),
		compile("-rdynamic", "-o", filepath.Join(dir, "host"), "testdata/host.c", "-ldl"),
	)
})

// impatient is a shim that soon kills an agent that ignores SIGTERM.
const impatient = "impatient.so"

func compileShim(path string, args ...string) error {
	args = append(args, "-fPIC", "-shared", "-DPLACEMENT_SECONDS=1", "-Wl,--version-script=spank.map", "-o", path)
	return compile(append(args, shimSources...)...)
}

func compile(args ...string) error {
	include := os.Getenv("SLURM_INCLUDE")
	if include == "" {
		include = "/usr/include"
	}
	args = append([]string{"-Wall", "-Wextra", "-Werror", "-I" + include}, args...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("gcc %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

func TestMain(m *testing.M) {
	code := m.Run()
	if err := cleanUp(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func labDir(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat("/usr/include/slurm/spank.h"); err != nil && os.Getenv("SLURM_INCLUDE") == "" {
		t.Skip("no slurm/spank.h: install libslurm-dev or set SLURM_INCLUDE")
	}
	dir, err := lab()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// host runs the hooks of the shim in a context and returns what it printed, by line.
func host(t *testing.T, env []string, context string, actions ...string) []string {
	t.Helper()
	return hostOf(t, filepath.Join(labDir(t), "slurmv.so"), env, context, actions...)
}

// hostOf is host with another shim.
func hostOf(t *testing.T, shim string, env []string, context string, actions ...string) []string {
	t.Helper()
	cmd := exec.Command(filepath.Join(labDir(t), "host"), append([]string{shim, context}, actions...)...)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("host: %v\n%s", err, out)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

const (
	inheritedTags = "SLURM_SPANK__SLURM_SPANK_OPTION_slurmv_vm_fabric=vni:2"
	inheritedVMs  = "SLURM_SPANK__SLURM_SPANK_OPTION_slurmv_vm_per_node=2"
	inheritedSpec = "SLURM_SPANK_SLURMV_SPEC={}"
)

func TestSubmission(t *testing.T) {
	heterogeneous := "error: --vm-per-node: a heterogeneous job cannot have VMs. " +
		`Submit one job, without hetjob and " : "`
	tests := map[string]struct {
		env     []string
		context string
		actions []string
		want    []string
	}{
		"a job without VM options is not looked at": {
			context: sbatch, actions: []string{"arg:wrong", "init", "init_post_opt"},
			want: []string{"init: 0", "init_post_opt: 0"},
		},
		"the checked request goes into the job's control environment": {
			context: sbatch, actions: []string{"arg:config=/c", "init", "--vm-per-node=2", "--sriov=1", "init_post_opt"},
			want: []string{"init: 0", "control: SLURMV_SPEC=/c vm-per-node=2 sriov=1",
				"control: SLURMV_REQUEST=cpus:4,mem:2560", "init_post_opt: 0"},
		},
		"commas are a value's own": {
			context: sbatch, actions: []string{"arg:config=/c", "init", "--vm-per-node=2", `--sriov=1:min=10g,spread+1`, "init_post_opt"},
			want: []string{"init: 0", "control: SLURMV_SPEC=/c vm-per-node=2 sriov=1:min=10g,spread+1",
				"control: SLURMV_REQUEST=cpus:4,mem:2560", "init_post_opt: 0"},
		},
		"the last value of an option holds": {
			context: sbatch, actions: []string{"arg:config=/c", "init", "--vm-per-node=2", "--vm-per-node=3", "init_post_opt"},
			want: []string{"init: 0", "control: SLURMV_SPEC=/c vm-per-node=3",
				"control: SLURMV_REQUEST=cpus:4,mem:2560", "init_post_opt: 0"},
		},
		"the checker's words reach the user whole": {
			context: sbatch, actions: []string{"init", "--vm-image=bad", "init_post_opt"},
			want: []string{"init: 0", "error: --vm-image: no such image", "#SBATCH --vm-image=good", "init_post_opt: -1"},
		},
		"an unknown argument in plugstack.conf is named": {
			context: sbatch, actions: []string{"arg:colour=red", "init", "--vm-per-node=2", "init_post_opt"},
			want: []string{"init: 0", `error: slurmv: the argument "colour=red" in plugstack.conf is none of ` +
				"config=, agent=, state= with an absolute path", "init_post_opt: -1"},
		},
		"slurmd logs an unknown argument and starts": {
			context: slurmd, actions: []string{"arg:agent=bin/agent", "init"},
			want: []string{`error: slurmv: the argument "agent=bin/agent" in plugstack.conf is none of ` +
				"config=, agent=, state= with an absolute path", "init: 0"},
		},
		"a second component with VMs in the first is refused": {
			context: sbatch, actions: []string{"arg:config=/c", "init", "--vm-per-node=2", "init_post_opt", "init_post_opt"},
			want: []string{"init: 0", "control: SLURMV_SPEC=/c vm-per-node=2",
				"control: SLURMV_REQUEST=cpus:4,mem:2560", "init_post_opt: 0", heterogeneous, "init_post_opt: -1"},
		},
		"VMs in the second component are refused": {
			context: sbatch, actions: []string{"init", "init_post_opt", "--vm-per-node=2", "init_post_opt"},
			want: []string{"init: 0", "init_post_opt: 0", heterogeneous, "init_post_opt: -1"},
		},
		"tags alone are for the controllers only": {
			context: sbatch, actions: []string{"init", "--vm-fabric=vni:2", "init_post_opt"},
			want: []string{"init: 0", "control: SLURMV_FABRIC=vni:2", "init_post_opt: 0"},
		},
		"tags of a VM job are for the controllers, too": {
			context: sbatch, actions: []string{"arg:config=/c", "init", "--vm-fabric=vni:2", "--vm-per-node=2", "init_post_opt"},
			want: []string{"init: 0", "control: SLURMV_SPEC=/c vm-per-node=2 vm-fabric=vni:2",
				"control: SLURMV_REQUEST=cpus:4,mem:2560", "control: SLURMV_FABRIC=vni:2", "init_post_opt: 0"},
		},
		"the components of a heterogeneous job may have tags": {
			context: sbatch, actions: []string{"init", "--vm-fabric=vni:2", "init_post_opt", "init_post_opt"},
			want: []string{"init: 0", "control: SLURMV_FABRIC=vni:2", "init_post_opt: 0", "control: SLURMV_FABRIC=vni:2", "init_post_opt: 0"},
		},
		"but not the second one alone": {
			context: sbatch, actions: []string{"init", "init_post_opt", "--vm-fabric=vni:2", "init_post_opt"},
			want: []string{"init: 0", "init_post_opt: 0", "error: --vm-fabric: all components of a heterogeneous job have the tags " +
				"of the first one. Give the option to the first component", "init_post_opt: -1"},
		},
		"nor VMs in the second one": {
			context: sbatch, actions: []string{"init", "--vm-fabric=vni:2", "init_post_opt", "--vm-per-node=2", "init_post_opt"},
			want: []string{"init: 0", "control: SLURMV_FABRIC=vni:2", "init_post_opt: 0", heterogeneous, "init_post_opt: -1"},
		},
		"a submission inside a job with tags forgets the outer job": {
			env:     []string{inheritedTags, "SLURM_SPANK_SLURMV_FABRIC=vni:2", "SLURM_SPANK_OTHER=1"},
			context: sbatch, actions: []string{"init", "environ", "init_post_opt"},
			want: []string{"init: 0", "environ: SLURM_SPANK_OTHER=1", "init_post_opt: 0"},
		},
		"a step of a job with tags inherits quietly": {
			env:     []string{"SLURM_JOB_ID=7", inheritedTags, "SLURM_SPANK_SLURMV_FABRIC=vni:2"},
			context: srun, actions: []string{"init", "--vm-fabric=vni:2", "init_post_opt", "environ"},
			want: []string{"init: 0", "init_post_opt: 0", "environ: " + inheritedTags, "environ: SLURM_SPANK_SLURMV_FABRIC=vni:2"},
		},
		"and so does one of a job whose option gave it none": {
			env:     []string{"SLURM_JOB_ID=7", inheritedTags},
			context: srun, actions: []string{"init", "--vm-fabric=vni:2", "init_post_opt"},
			want: []string{"init: 0", "init_post_opt: 0"},
		},
		"and one of a VM job with tags": {
			env:     []string{"SLURM_JOB_ID=7", inheritedVMs, inheritedSpec, inheritedTags},
			context: srun, actions: []string{"init", "--vm-per-node=2", "--vm-fabric=vni:2", "init_post_opt"},
			want: []string{"init: 0", "init_post_opt: 0"},
		},
		"a step cannot change the tags": {
			env:     []string{"SLURM_JOB_ID=7", inheritedTags},
			context: srun, actions: []string{"init", "--vm-fabric=vni:2", "--vm-fabric=off", "init_post_opt"},
			want: []string{"init: 0", "error: --vm-fabric: the tags of job 7 were fixed when it was submitted. " +
				"Leave the option out, or give it to sbatch or salloc", "init_post_opt: -1"},
		},
		"nor those of a VM job": {
			env:     []string{"SLURM_JOB_ID=7", inheritedVMs, inheritedSpec},
			context: srun, actions: []string{"init", "--vm-per-node=2", "--vm-fabric=off", "init_post_opt"},
			want: []string{"init: 0", "error: --vm-fabric: the tags of job 7 were fixed when it was submitted. " +
				"Leave the option out, or give it to sbatch or salloc", "init_post_opt: -1"},
		},
		"a step of a job with tags cannot add VMs": {
			env:     []string{"SLURM_JOB_ID=7", inheritedTags},
			context: srun, actions: []string{"init", "--vm-fabric=vni:2", "--vm-per-node=2", "init_post_opt"},
			want: []string{"init: 0", "error: --vm-per-node: job 7 was submitted without VM options, and a step " +
				"cannot add VMs. Give the option to sbatch or salloc", "init_post_opt: -1"},
		},
		"srun alone reserves no tags": {
			context: srun, actions: []string{"init", "--vm-fabric=vni:2", "init_post_opt"},
			want: []string{"init: 0", "error: --vm-fabric: srun alone reserves no tags. Submit a job with this option " +
				"(sbatch or salloc) and call srun in it", "init_post_opt: -1"},
		},
		"a submission inside a VM job forgets the outer job": {
			env: []string{inheritedVMs, "SLURM_SPANK_SLURMV_" + strings.Repeat("X", 300) + "=1", "KEEP_SLURM_SPANK=1", inheritedSpec, "_SLURM_SPANK_OPTION_slurmv_sriov=1",
				"SLURM_SPANK_OTHER=1", "SLURM_SPANK_SLURMV_REQUEST=x"},
			context: sbatch, actions: []string{"init", "environ", "init_post_opt"},
			want: []string{"init: 0", "environ: SLURM_SPANK_SLURMV_" + strings.Repeat("X", 300) + "=1", "environ: KEEP_SLURM_SPANK=1", "environ: SLURM_SPANK_OTHER=1", "init_post_opt: 0"},
		},
		"a submission inside a heterogeneous job is a plain one": {
			env:     []string{"SLURM_HET_SIZE=2", "KEEP_SLURM_HET_SIZE=1"},
			context: sbatch, actions: []string{"init", "environ"},
			want: []string{"init: 0", "environ: KEEP_SLURM_HET_SIZE=1"},
		},
		"a step of a heterogeneous job is": {
			env:     []string{"SLURM_HET_SIZE=2"},
			context: srun, actions: []string{"init", "environ"},
			want: []string{"init: 0", "environ: SLURM_HET_SIZE=2"},
		},
		"a step of a VM job inherits quietly": {
			env:     []string{"SLURM_JOB_ID=7", inheritedVMs, inheritedSpec},
			context: srun, actions: []string{"init", "--vm-per-node=2", "init_post_opt", "environ"},
			want: []string{"init: 0", "init_post_opt: 0", "environ: " + inheritedVMs, "environ: " + inheritedSpec},
		},
		"a step cannot change the number of VMs": {
			env:     []string{"SLURM_JOB_ID=7", inheritedVMs, inheritedSpec},
			context: srun, actions: []string{"init", "--vm-per-node=2", "--vm-per-node=3", "init_post_opt"},
			want: []string{"init: 0", "error: --vm-per-node: the VMs of job 7 were fixed when it was submitted. " +
				"Leave the option out, or give it to sbatch or salloc", "init_post_opt: -1"},
		},
		"a step cannot add an option": {
			env:     []string{"SLURM_JOB_ID=7", inheritedVMs, inheritedSpec},
			context: srun, actions: []string{"init", "--vm-per-node=2", "--sriov=1", "init_post_opt"},
			want: []string{"init: 0", "error: --sriov: the VMs of job 7 were fixed when it was submitted. " +
				"Leave the option out, or give it to sbatch or salloc", "init_post_opt: -1"},
		},
		"a step cannot add VMs to a job without": {
			env:     []string{"SLURM_JOB_ID=7"},
			context: srun, actions: []string{"init", "--vm-per-node=2", "init_post_opt"},
			want: []string{"init: 0", "error: --vm-per-node: job 7 was submitted without VM options, and a step " +
				"cannot add VMs. Give the option to sbatch or salloc", "init_post_opt: -1"},
		},
		"srun alone is sent to sbatch": {
			context: srun, actions: []string{"init", "--vm-per-node=2", "init_post_opt"},
			want: []string{"init: 0", "error: --vm-per-node: srun alone starts no VMs. Submit a job with this option " +
				"(sbatch or salloc) and start the program in it with: slurm-v-run [srun options] program", "init_post_opt: -1"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := host(t, tt.env, tt.context, tt.actions...)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("the host saw (-want +got):\n%s", diff)
			}
		})
	}
}

// The real libslurmv.so, in a process that is not Go's.
func TestLibrary(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the library: run without -short")
	}
	before := host(t, nil, sbatch, "signals")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(labDir(t))); err != nil {
		t.Fatal(err)
	}
	shim := filepath.Join(dir, "slurmv.so")
	build := exec.Command("go", "build", "-buildmode=c-shared", "-o", filepath.Join(dir, "libslurmv.so"), ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	write(t, filepath.Join(dir, "slurmv.toml"), "[fabric.vni]\npool = '1024-2047'")
	config := "arg:config=" + filepath.Join(dir, "slurmv.toml")

	refused := hostOf(t, shim, nil, sbatch, config, "init", "--vm-per-node=many", "init_post_opt", "signals")
	if len(refused) != 5 || !strings.HasPrefix(refused[1], "error: --vm-per-node: many ") {
		t.Fatalf("a wrong option: the host saw %q", refused)
	}
	if diff := cmp.Diff(before, refused[3:]); diff != "" {
		t.Errorf("signals differ after Go was called (-before +after):\n%s", diff)
	}
	taken := hostOf(t, shim, nil, sbatch, config, "init", "--vm-per-node=2", "--vm-image=/i", "init_post_opt")
	if !strings.HasPrefix(taken[1], `control: SLURMV_SPEC={"vms_per_node":2,`) || len(taken) != 4 {
		t.Errorf("right options: the host saw %q", taken)
	}
	tags := hostOf(t, shim, nil, sbatch, config, "init", "--vm-fabric=low-latency,vni:2", "init_post_opt")
	if diff := cmp.Diff([]string{"init: 0", "control: SLURMV_FABRIC=vni:2,tc:low-latency", "init_post_opt: 0"}, tags); diff != "" {
		t.Errorf("tags alone: the host saw (-want +got):\n%s", diff)
	}
}

func TestExportedSymbols(t *testing.T) {
	out, err := exec.Command("nm", "-D", "--defined-only", filepath.Join(labDir(t), "slurmv.so")).Output()
	if err != nil {
		t.Skipf("no nm: install binutils (%v)", err)
	}
	for line := range strings.Lines(string(out)) {
		name := strings.Fields(line)[2]
		if !strings.HasPrefix(name, "slurm_spank_") && !strings.Contains(name, "plugin_") {
			t.Errorf("slurmv.so exports %s, which Slurm or another plugin may take for its own", name)
		}
	}
}
