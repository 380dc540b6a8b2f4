package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/slurm"
)

// A job of one VM with these options needs 2 CPUs and 1280 MiB on a node.
var oneVM = []string{"vm-per-node=1", "vcpu-per-vm=2", "memory-per-vm=1G", "vm-image=/i"}

const enough = "#!/bin/sh\n#SBATCH --mincpus=2 --mem=1280M\n"

func TestAnswer(t *testing.T) {
	const (
		accepted = "cpus:2,mem:1280"
		vnis     = "fabric.vni.pool = '11-99'"
		short    = "add to the batch script:\n#SBATCH --mincpus=2\n#SBATCH --mem=1280M"
	)
	tests := map[string]struct {
		site    string // slurmv.toml
		options []string
		args    []string
		script  string // job.sh in the directory of the submission
		stdin   string // a file; empty is a pipe
		want    string // the resources
		tags    string // the wish for the controllers
		wantErr string
	}{
		"the resources are in the script": {
			options: oneVM, args: []string{"sbatch", "job.sh"}, script: enough, want: accepted,
		},
		"the resources are on the command line": {
			options: oneVM, args: []string{"/usr/bin/sbatch", "--mincpus", "2", "--mem=2G", "job.sh"}, want: accepted,
		},
		"nobody asked for the resources": {
			options: oneVM, args: []string{"sbatch", "job.sh"}, script: "#!/bin/sh\n", wantErr: short,
		},
		"the arguments of the script are not Slurm's": {
			options: oneVM, args: []string{"sbatch", "job.sh", "--mincpus=2", "--mem=2G"}, script: "#!/bin/sh\n", wantErr: short,
		},
		"the value of an option is not the script": {
			options: oneVM, args: []string{"sbatch", "-J", "x.sh", "job.sh"}, script: enough, want: accepted,
		},
		"a script from a file on standard input": {
			options: oneVM, args: []string{"sbatch"}, stdin: "#!/bin/sh\n", wantErr: short,
		},
		"a script through a pipe is left to the nodes": {
			options: oneVM, args: []string{"sbatch"}, want: accepted,
		},
		"a script that sbatch found elsewhere is left to the nodes": {
			options: oneVM, args: []string{"sbatch", "in-path.sh"}, want: accepted,
		},
		"a wrapped command has no lines for Slurm": {
			options: oneVM, args: []string{"sbatch", "--wrap=true"}, stdin: enough, wantErr: short,
		},
		"salloc has no script": {
			options: oneVM, args: []string{"salloc", "job.sh"}, script: enough, wantErr: "add to salloc: --mincpus=2 --mem=1280M",
		},
		"a command under another name is left to the nodes": {
			options: oneVM, args: []string{"sbatch.real"}, stdin: "#!/bin/sh\n", want: accepted,
		},
		"job_submit.lua adds the resources": {
			site: "[slurm]\nresources = 'job_submit'", options: oneVM, args: []string{"sbatch", "job.sh"},
			script: "#!/bin/sh\n", want: accepted,
		},
		"VFs are among the resources": {
			options: append([]string{"sriov=2"}, oneVM...), args: []string{"sbatch", "job.sh"}, script: enough,
			want: accepted + ",vf:2",
		},
		"and what they reserve": {
			options: append([]string{"sriov=1:min=10g,max=40g,numa=require,spread+1:min=500"}, oneVM...), args: []string{"sbatch", "job.sh"},
			script: enough, want: accepted + ",vf:2,vfbw:10500",
		},
		"and their JSON is": {
			options: append([]string{`sriov=[{"min_tx_rate":15000,"max_tx_rate":20000},{}]`}, oneVM...), args: []string{"sbatch", "job.sh"},
			script: enough, want: accepted + ",vf:2,vfbw:15000",
		},
		"VFs that Slurm counts must be asked for": {
			site: "[slurm]\ngres = true", options: append([]string{"sriov=2:min=10g"}, oneVM...), args: []string{"sbatch", "job.sh"},
			script: enough, wantErr: "the VMs need 2 VFs with 20000 Mb/s on every node, and the job does not ask for that; " +
				"add to the batch script:\n#SBATCH --gres=vf:2,vfbw:20000",
		},
		"components on the command line": {
			options: oneVM, args: []string{"sbatch", "-n1", ":", "-n1", "job.sh"}, script: enough,
			wantErr: "--vm-per-node: a heterogeneous job cannot have VMs",
		},
		"components in the script": {
			options: oneVM, args: []string{"sbatch", "job.sh"}, script: enough + "#SBATCH hetjob\n",
			wantErr: "--vm-per-node: a heterogeneous job cannot have VMs",
		},
		"VFs have a VLAN of the job's": {
			site: "fabric.vlan.pool = '2-9'", options: append([]string{"sriov=2"}, oneVM...), args: []string{"sbatch", "job.sh"}, script: enough,
			want: accepted + ",vf:2", tags: "vlan:1,vms:1,vfs:2",
		},
		"a job without VMs may have VNIs and any resources": {
			site: vnis, options: []string{"vm-fabric=vni:2"}, args: []string{"sbatch", "job.sh"}, script: "#!/bin/sh\n", tags: "vni:2",
		},
		"and may be heterogeneous": {
			site: vnis, options: []string{"vm-fabric=vni:2"}, args: []string{"salloc", "-n1", ":", "-n1"}, tags: "vni:2",
		},
		"and asks for licences where Slurm counts them": {
			site: "slurm.resources = 'job_submit'\nfabric.licenses = true\n" + vnis, options: []string{"vm-fabric=vni:2"}, args: []string{"sbatch", "job.sh"},
			want: "lic_vni:2", tags: "vni:2",
		},
		"and may want no tags": {
			site: vnis, options: []string{"vm-fabric=off"}, args: []string{"sbatch", "job.sh"}, tags: "off",
		},
		"more VNIs than a job has": {
			site: vnis, options: []string{"vm-fabric=vni:42"}, args: []string{"sbatch", "job.sh"},
			wantErr: "--vm-fabric: vni:42 is too many; a job has at most 4 VNIs",
		},
		"VNIs at a site without": {
			options: []string{"vm-fabric=vni:1"}, args: []string{"sbatch", "job.sh"}, wantErr: "--vm-fabric: this site has no VNI for jobs",
		},
		"tags and other options make no VM job": {
			site: vnis, options: []string{"vm-fabric=vni:1", "sriov=1"}, args: []string{"sbatch", "job.sh"}, wantErr: "--sriov: needs --vm-per-node=N beside it",
		},
		"a wrong value": {
			options: []string{"vm-per-node=many"}, args: []string{"sbatch", "job.sh"}, wantErr: "--vm-per-node: many",
		},
		"a wrong configuration is named": {
			site: "colour = 'red'", options: oneVM, args: []string{"sbatch", "job.sh"}, wantErr: "slurmv.toml",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "slurmv.toml"), tt.site)
			write(t, filepath.Join(dir, "job.sh"), tt.script)
			s := submission{
				config: filepath.Join(dir, "slurmv.toml"), options: tt.options, dir: dir, args: tt.args,
				env: func(string) string { return "" }, stdin: "/dev/null",
			}
			if tt.stdin != "" {
				s.stdin = filepath.Join(dir, "stdin")
				write(t, s.stdin, tt.stdin)
			}
			got, err := s.answer()
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error = %v, want one with %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.resources != tt.want {
				t.Errorf("resources = %q, want %q", got.resources, tt.want)
			}
			if got.fabric != tt.tags || (got.spec == "") != jobspec.WithoutVMs(s.values()) {
				t.Errorf("tags = %q, want %q; the nodes read %q", got.fabric, tt.tags, got.spec)
			}
		})
	}
}

func TestAnswerIsWhatTheNodesRead(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "slurmv.toml"), "[slurm]\nresources = 'job_submit'")
	s := submission{
		config: filepath.Join(dir, "slurmv.toml"), dir: dir, args: []string{"sbatch", "--chdir=work", "job.sh"},
		options: []string{"vm-per-node=2", "vm-image=./a=b.qcow2"}, stdin: "/dev/null",
		env: func(name string) string { return map[string]string{"SLURMV_VCPU_PER_VM": "3"}[name] },
	}
	got, err := s.answer()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := jobspec.Decode(got.spec)
	if err != nil {
		t.Fatal(err)
	}
	type parts struct {
		VMs, VCPUs     int
		Image, WorkDir string
	}
	want := parts{VMs: 2, VCPUs: 3, Image: filepath.Join(dir, "work/a=b.qcow2"), WorkDir: filepath.Join(dir, "work")}
	if again, err := s.answer(); err != nil || len(spec.Nonce) < 26 || again.spec == got.spec {
		t.Errorf("two submissions have the secrets of %s and %s, %v; want two of 128 bits", got.spec, again.spec, err)
	}
	if diff := cmp.Diff(want, parts{spec.VMsPerNode, spec.VCPUs, spec.Image, spec.WorkDir}); diff != "" {
		t.Errorf("the nodes read (-want +got):\n%s", diff)
	}
}

// Slurm's commands resolve symbolic links in the working directory, and shells do not.
func TestCheckBehindASymbolicLink(t *testing.T) {
	physical, link := t.TempDir(), filepath.Join(t.TempDir(), "scratch")
	if err := os.Symlink(physical, link); err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(physical, "slurmv.toml")
	write(t, conf, "[slurm]\nresources = 'job_submit'")
	t.Chdir(link)
	got, err := check(conf, oneVM)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := jobspec.Decode(got.spec)
	if err != nil {
		t.Fatal(err)
	}
	slurms, err := os.Readlink("/proc/self/cwd")
	if err != nil {
		t.Fatal(err)
	}
	if spec.WorkDir != slurms || spec.WorkDirAlias != link {
		t.Errorf("the VMs have %s and %q, want Slurm's %s and the shell's %s", spec.WorkDir, spec.WorkDirAlias, slurms, link)
	}
}

func TestAliasOfChdir(t *testing.T) {
	dir := t.TempDir()
	physical, link := filepath.Join(dir, "lustre"), filepath.Join(dir, "scratch")
	if err := errors.Join(os.Mkdir(physical, 0o755), os.Symlink("lustre", link)); err != nil {
		t.Fatal(err)
	}
	for chdir, want := range map[string]string{
		"/elsewhere/x": "/elsewhere/x", link: physical, "run": "/shell/run",
	} {
		s := submission{dir: "/slurm", shell: "/shell"}
		line := slurm.ReadCommandLine([]string{"sbatch", "--chdir=" + chdir, "job.sh"})
		if got := s.alias(line.Submission("", os.Getenv)); got != want {
			t.Errorf("with --chdir=%s the alias is %s, want %s", chdir, got, want)
		}
	}
}

func TestCommandLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cmdline")
	write(t, path, "sbatch\x00--comment=a b\x00\x00job.sh\x00")
	got, err := commandLine(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"sbatch", "--comment=a b", "", "job.sh"}, got); diff != "" {
		t.Errorf("arguments differ (-want +got):\n%s", diff)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
