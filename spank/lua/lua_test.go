// Package slurm tests the Lua snippets with tables in place of Slurm's own.
//
// Each Slurm brings the Lua that it was built with, Debian's 5.1, so they run in several.
package slurm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// jobSubmit calls the snippet as slurmctld does and prints the result and what it
// set in job_desc.
const jobSubmit = `
slurm = { SUCCESS = 0, ERROR = -1, NO_VAL16 = 65534, NO_VAL = 4294967294, NO_VAL64 = 1.844674407371e+19 }
function slurm.log_user(format, text) print("user: " .. text) end
function slurm.log_error(format, text) print("log: " .. text) end
local given = ...
local unset = { pn_min_cpus = 65534, cpus_per_task = 65534, ntasks_per_node = 65534, num_tasks = 4294967294,
	bitflags = 0, min_nodes = 4294967294, max_nodes = 4294967294, het_job_offset = 4294967294 }
local job_desc = setmetatable({}, {
	__index = function(_, field) local v = given[field]; if v == nil then v = unset[field] end; return v end,
	__newindex = function(_, field, value) print(field .. "=" .. string.gsub(tostring(value), "%.0$", "")) end,
})
slurmv_gres = true
dofile("job_submit.lua")
print(slurm_job_submit(job_desc))
`

// cliFilter calls the snippet as sbatch does.
const cliFilter = `
slurm = { SUCCESS = 0, ERROR = -1 }
function slurm.log_error(format, text) print("user: " .. text) end
local given = ...
local unset = { type = "sbatch", mincpus = "-1", ["cpus-per-task"] = "0", ntasks = "1", ["ntasks-per-node"] = "-2", nodes = "1" }
local options = setmetatable({}, {
	__index = function(_, name) return given[name] or unset[name] end,
	__newindex = function(_, name, value) print(name .. "=" .. value) end,
})
slurmv_gres = true
dofile("cli_filter.lua")
print(slurm_cli_pre_submit(options))
`

var cleanUp = func() error { return nil }

func TestMain(m *testing.M) {
	code := m.Run()
	if err := cleanUp(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// built is the directory of the two files as they are installed.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "slurmv-lua")
	if err != nil {
		return "", err
	}
	cleanUp = func() error { return os.RemoveAll(dir) }
	for _, source := range []string{"rules.lua", "job_submit.lua.in", "cli_filter.lua.in", "../../Makefile"} {
		if _, err := os.Stat(source); err != nil { // go test keeps no result beyond a change of what it has looked at
			return "", err
		}
	}
	out, err := exec.Command("make", "-s", "-C", "../..", "BUILD="+dir, dir+"/job_submit.lua", dir+"/cli_filter.lua").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("make: %w\n%s", err, out)
	}
	return dir, err
})

// interpreters are the versions of Lua that are there.
func interpreters(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, name := range []string{"lua5.1", "lua5.3", "lua5.4"} {
		if _, err := exec.LookPath(name); err == nil {
			found = append(found, name)
		}
	}
	if found == nil {
		t.Skip("no lua5.1, lua5.3 or lua5.4: install the package lua5.1")
	}
	return found
}

// run calls a snippet with the Lua table arguments in each Lua and returns the lines
// it printed, the same in all.
func run(t *testing.T, harness, arguments string, env ...string) []string {
	t.Helper()
	var first []string
	for _, lua := range interpreters(t) {
		got := runIn(t, lua, harness, arguments, env...)
		if first != nil && !cmp.Equal(first, got) {
			t.Errorf("%s printed something else than the Lua before it (-before +%[1]s):\n%s", lua, cmp.Diff(first, got))
		}
		first = got
	}
	return first
}

func runIn(t *testing.T, lua, harness, arguments string, env ...string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "harness.lua")
	text := "local harness = function(...)" + harness + "end\nharness(" + arguments + ")\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, lua, path)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("lua: %v\n%s", err, out)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

func uneven(tasks, perNode int) []string {
	return []string{fmt.Sprintf("user: slurm-v: --ntasks=%d and --ntasks-per-node=%d leave it to Slurm how many tasks a node has, "+
		"and it may give a node too few CPUs for its VMs; leave --ntasks-per-node out", tasks, perNode), "-1"}
}

func TestJobSubmit(t *testing.T) {
	const vms = `spank_job_env = { [0] = "_SLURM_SPANK_OPTION_slurmv_vm_per_node=2", "SLURMV_REQUEST=cpus:4,mem:2560" }, `
	const vfs = `spank_job_env = { [0] = "SLURMV_REQUEST=cpus:4,mem:2560,vf:2" }, `
	const reserved = `spank_job_env = { [0] = "SLURMV_REQUEST=cpus:4,mem:2560,vf:4,vfbw:80000" }, `
	const tags = `spank_job_env = { [0] = "SLURMV_REQUEST=lic_vni:2" }, `
	tests := map[string]struct {
		job  string
		want []string
	}{
		"tags of a job without VMs are licences": {
			job: tags + `pn_min_cpus = 2`, want: []string{"licenses=slurmv_vni:2", "0"},
		},
		"and stand beside the user's own": {
			job: tags + `licenses = "matlab:3,abaqus@server"`, want: []string{"licenses=matlab:3,abaqus@server,slurmv_vni:2", "0"},
		},
		"tags of VMs are licences, too": {
			job:  `spank_job_env = { [0] = "SLURMV_REQUEST=cpus:4,mem:2560,vf:2,lic_vlan:1,lic_pkey:1,lic_vni:4" }`,
			want: []string{"pn_min_cpus=4", "min_mem_per_node=2560", "gres=vf:2", "licenses=slurmv_vlan:1,slurmv_pkey:1,slurmv_vni:4", "0"},
		},
		"enough licences of the user's own stay": {
			job: tags + `licenses = "slurmv_vni:1;matlab;slurmv_vni"`, want: []string{"0"},
		},
		"a licence of a longer name is another one": {
			job: tags + `licenses = "slurmv_vnis:9"`, want: []string{"licenses=slurmv_vnis:9,slurmv_vni:2", "0"},
		},
		"too few licences": {
			job: tags + `licenses = "slurmv_vni"`, want: []string{"user: slurm-v: the job needs 2 of the licence slurmv_vni and " +
				"--licenses gives 1; leave slurmv_vni out of it or raise it", "-1"},
		},
		"alternatives": {
			job: tags + `licenses = "matlab|octave"`, want: []string{"user: slurm-v: --licenses has alternatives (|), and the licences of the " +
				"job's tags on the fabric cannot be added to them; write one of them, or --vm-fabric=off", "-1"},
		},
		"alternatives of a job without tags are its own": {
			job: `spank_job_env = { [0] = "SLURMV_REQUEST=cpus:4,mem:2560" }, licenses = "matlab|octave"`, want: []string{"pn_min_cpus=4", "min_mem_per_node=2560", "0"},
		},
		"no tags": {job: `spank_job_env = { [0] = "SLURMV_REQUEST=lic_vni:0" }`, want: []string{"0"}},
		"the first component of a heterogeneous job has the licences": {
			job: tags + `het_job_offset = 0`, want: []string{"licenses=slurmv_vni:2", "0"},
		},
		"and the others have none": {job: tags + `het_job_offset = 1`, want: []string{"0"}},
		"a job without VMs is not touched": {
			job:  `spank_job_env = { [0] = "_SLURM_SPANK_OPTION_other_x=SLURMV_REQUEST=cpus:4,mem:1" }, pn_min_cpus = 2`,
			want: []string{"0"},
		},
		"nothing asked for": {
			job: vms, want: []string{"pn_min_cpus=4", "min_mem_per_node=2560", "0"},
		},
		"more asked for stays": {
			job:  vms + `pn_min_cpus = 8, min_mem_per_node = 8192`,
			want: []string{"pn_min_cpus=8", "min_mem_per_node=8192", "0"},
		},
		"many tasks may lie unevenly, so each node still needs its CPUs": {
			job:  vms + `num_tasks = 8, max_nodes = 2, bitflags = 2^28 + 2^14`,
			want: []string{"bitflags=268435456", "num_tasks=4294967294", "pn_min_cpus=4", "min_mem_per_node=2560", "0"},
		},
		"CPUs come in whole tasks": {
			job:  vms + `cpus_per_task = 3`,
			want: []string{"pn_min_cpus=6", "min_mem_per_node=2560", "0"},
		},
		"sbatch has counted tasks that the user has not": {
			job:  vms + `cpus_per_task = 2, num_tasks = 2`,
			want: []string{"num_tasks=4294967294", "pn_min_cpus=4", "min_mem_per_node=2560", "0"},
		},
		"each task has enough CPUs": {
			job:  vms + `cpus_per_task = 4, num_tasks = 2, ntasks_per_node = 1, bitflags = 2^14`,
			want: []string{"pn_min_cpus=4", "min_mem_per_node=2560", "0"},
		},
		"tasks per node leave room for more CPUs": {
			job:  vms + `ntasks_per_node = 2`,
			want: []string{"ntasks_per_node=65534", "pn_min_cpus=4", "min_mem_per_node=2560", "0"},
		},
		"and so do those of several CPUs": {
			job:  vms + `ntasks_per_node = 1, cpus_per_task = 2, num_tasks = 2`,
			want: []string{"num_tasks=4294967294", "ntasks_per_node=65534", "pn_min_cpus=4", "min_mem_per_node=2560", "0"},
		},
		"enough tasks of several CPUs": {
			job:  vms + `ntasks_per_node = 2, cpus_per_task = 2`,
			want: []string{"pn_min_cpus=4", "min_mem_per_node=2560", "0"},
		},
		"more tasks than CPUs of the VMs": {
			job:  vms + `ntasks_per_node = 3, cpus_per_task = 2`,
			want: []string{"pn_min_cpus=4", "min_mem_per_node=2560", "0"},
		},
		"all tasks and those of a node, which have enough CPUs": {
			job:  vms + `num_tasks = 16, ntasks_per_node = 8, bitflags = 2^14`,
			want: []string{"min_nodes=2", "max_nodes=2", "pn_min_cpus=4", "min_mem_per_node=2560", "0"},
		},
		"all tasks and those of a node make nodes": {
			job: vms + `num_tasks = 6, ntasks_per_node = 2, min_nodes = 1, max_nodes = 4, bitflags = 2^14`,
			want: []string{"min_nodes=3", "max_nodes=3", "bitflags=0", "num_tasks=4294967294", "ntasks_per_node=65534",
				"pn_min_cpus=4", "min_mem_per_node=2560", "0"},
		},
		"a node with fewer tasks than others": {
			job: vms + `num_tasks = 3, ntasks_per_node = 2, bitflags = 2^14`, want: uneven(3, 2),
		},
		"fewer tasks than the nodes can have": {
			job: vms + `num_tasks = 4, ntasks_per_node = 4, min_nodes = 2, max_nodes = 2, bitflags = 2^14`, want: uneven(4, 4),
		},
		"more tasks than the nodes can have": {
			job: vms + `num_tasks = 8, ntasks_per_node = 2, min_nodes = 1, max_nodes = 2, bitflags = 2^14`, want: uneven(8, 2),
		},
		"all memory of the node is enough": {
			job: vms + `min_mem_per_node = 0`, want: []string{"pn_min_cpus=4", "min_mem_per_node=0", "0"},
		},
		"too little memory is not raised behind the user's back": {
			job: vms + `min_mem_per_node = 1024`,
			want: []string{"user: slurm-v: the VMs need 2560 MiB of memory on each node and --mem gives 1024; " +
				"leave it out or raise it", "-1"},
		},
		"memory per CPU counts for the CPUs of the VMs": {
			job: vms + `min_mem_per_cpu = 640`, want: []string{"pn_min_cpus=4", "0"},
		},
		"too little memory per CPU": {
			job: vms + `min_mem_per_cpu = 600`,
			want: []string{"user: slurm-v: the VMs need 2560 MiB of memory on each node and --mem-per-cpu gives 2400; " +
				"leave it out or raise it", "-1"},
		},
		"VFs are added to other devices": {
			job:  vfs + `gres = "gres:gpu:a:1"`,
			want: []string{"pn_min_cpus=4", "min_mem_per_node=2560", "gres=gpu:a:1,vf:2", "0"},
		},
		"enough VFs of several types stay": {
			job:  vfs + `gres = "gres:vf:fast:1,gres/vf:1"`,
			want: []string{"pn_min_cpus=4", "min_mem_per_node=2560", "0"},
		},
		"too few VFs": {
			job: vfs + `gres = "gres:vf"`,
			want: []string{"user: slurm-v: the VMs need 2 of the GRES vf on each node and --gres gives 1; " +
				"leave vf out of it or raise it", "-1"},
		},
		"bandwidth is asked for in plain Mb/s": {
			job:  reserved,
			want: []string{"pn_min_cpus=4", "min_mem_per_node=2560", "gres=vf:4,vfbw:80000", "0"},
		},
		"VFs of the user's own leave the bandwidth to add": {
			job:  reserved + `gres = "gres:vf:4"`,
			want: []string{"pn_min_cpus=4", "min_mem_per_node=2560", "gres=vf:4,vfbw:80000", "0"},
		},
		"bandwidth of the user's own leaves the VFs to add": {
			job:  reserved + `gres = "gres/vfbw=90000"`,
			want: []string{"pn_min_cpus=4", "min_mem_per_node=2560", "gres=vfbw=90000,vf:4", "0"},
		},
		"a letter of Slurm's is a power of 1024": {
			job:  reserved + `gres = "gres:vf:4,gres:vfbw:79K"`,
			want: []string{"pn_min_cpus=4", "min_mem_per_node=2560", "0"},
		},
		"too little bandwidth": {
			job: reserved + `gres = "gres:vfbw:78k"`,
			want: []string{"user: slurm-v: the VMs need 80000 of the GRES vfbw on each node and --gres gives 79872; " +
				"leave vfbw out of it or raise it", "-1"},
		},
		"a component of a heterogeneous job": {
			job: vms + `het_job_offset = 0`, want: []string{
				"user: slurm-v: a heterogeneous job cannot have VMs; submit one job", "-1"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, run(t, jobSubmit, "{"+tt.job+"}")); diff != "" {
				t.Errorf("slurmctld saw (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCLIFilter(t *testing.T) {
	const vms = `spank = { slurmv = { ["vm-per-node"] = "2", ["vm-image"] = "a b; reboot" } }, `
	tests := map[string]struct {
		options string
		slurmv  string // the body of a slurmv on PATH
		want    []string
	}{
		"a job without VMs is not touched": {
			options: `spank = { slurmv = {}, other = { x = "1" } }`, slurmv: "exit 1", want: []string{"0"},
		},
		"a step is not touched": {
			options: vms + `type = "srun"`, slurmv: "exit 1", want: []string{"0"},
		},
		"nothing asked for": {
			options: vms, slurmv: "echo cpus:4,mem:2560,vf:2",
			want: []string{"mincpus=4", "mem=2560M", "gres=vf:2", "0"},
		},
		"bandwidth is asked for in plain Mb/s": {
			options: vms + `gres = "gres:gpu:1"`, slurmv: "echo cpus:4,mem:2560,vf:4,vfbw:80000",
			want: []string{"mincpus=4", "mem=2560M", "gres=gpu:1,vf:4,vfbw:80000", "0"},
		},
		"tags of a job without VMs are licences": {
			options: `spank = { slurmv = { ["vm-fabric"] = "vni:2,bulk" } }, licenses = "matlab"`,
			slurmv:  `[ "$*" = "resources --vm-fabric=vni:2,bulk" ] && echo lic_vni:2`,
			want:    []string{"licenses=matlab,slurmv_vni:2", "0"},
		},
		"tags that nobody counts": {
			options: `spank = { slurmv = { ["vm-fabric"] = "off" } }`, slurmv: "echo nothing", want: []string{"0"},
		},
		"a step that inherits tags is not touched": {
			options: `spank = { slurmv = { ["vm-fabric"] = "off" } }, type = "srun"`, slurmv: "exit 1", want: []string{"0"},
		},
		"a command that does not know of tags": {
			options: `spank = { slurmv = { ["vm-fabric"] = "vni:1" } }`, slurmv: "exit 1",
			want: []string{"user: slurm-v: what the job needs is unknown, since this command does not print it: slurmv resources --vm-fabric='vni:1'", "-1"},
		},
		"JSON reaches the command whole": {
			options: `spank = { slurmv = { ["vm-per-node"] = "2", sriov = '[{"min_tx_rate":15000, "max_tx_rate":20000},{}]' } }`,
			slurmv:  `[ "$3" = '--sriov=[{"min_tx_rate":15000, "max_tx_rate":20000},{}]' ] && echo cpus:1,mem:2`,
			want:    []string{"mincpus=1", "mem=2M", "0"},
		},
		"nor a quote that ends the command's own": {
			options: `spank = { slurmv = { ["vm-per-node"] = "2", sriov = "1';echo cpus:1,mem:1;'" } }`,
			slurmv:  "echo cpus:4,mem:2560",
			want:    []string{"user: slurm-v: --sriov: has a character that no value has", "-1"},
		},
		"nor a variable": {
			options: `spank = { slurmv = { ["vm-per-node"] = "2", sriov = "$HOME" } }`,
			slurmv:  "echo cpus:4,mem:2560",
			want:    []string{"user: slurm-v: --sriov: has a character that no value has", "-1"},
		},
		"the counted options go to the command, and no other": {
			options: `spank = { slurmv = { ["vm-per-node"] = "2", ["sriov"] = "1:min=10g,spread+2", ["vm-image"] = "x" } }`,
			slurmv:  `[ "$*" = "resources --vm-per-node=2 --sriov=1:min=10g,spread+2" ] && echo cpus:1,mem:2`,
			want:    []string{"mincpus=1", "mem=2M", "0"},
		},
		"no user's text is shown to the shell": {
			options: `spank = { slurmv = { ["vm-per-node"] = "2", ["memory-per-vm"] = "1G;echo pwned" } }`,
			slurmv:  "echo cpus:4,mem:2560",
			want:    []string{"user: slurm-v: --memory-per-vm: has a character that no value has", "-1"},
		},
		"nor a line break": {
			options: `spank = { slurmv = { ["vm-per-node"] = "2\necho" } }`, slurmv: "echo cpus:4,mem:2560",
			want: []string{"user: slurm-v: --vm-per-node: has a character that no value has", "-1"},
		},
		"a command that does not know": {
			options: vms, slurmv: "exit 1",
			want: []string{"user: slurm-v: what the job needs is unknown, since this command does not print it: " +
				"slurmv resources --vm-per-node='2'", "-1"},
		},
		"a command that prints something else": {
			options: vms, slurmv: "echo cpus:4,mem:2560,swap:1",
			want: []string{"user: slurm-v: what the job needs is unknown, since this command does not print it: " +
				"slurmv resources --vm-per-node='2'", "-1"},
		},
		"memory of more digits than any": {
			options: vms + `mem = string.rep("9", 400)`, slurmv: "echo cpus:4,mem:3072",
			want: []string{"mincpus=4", "mem=1000000000000M", "0"},
		},
		"an error in the rules refuses the job": {
			options: `spank = setmetatable({}, { __index = function() error("a fault", 0) end })`,
			want: []string{"user: slurm-v: the rules for VM jobs failed: a fault",
				"user: slurm-v: the rules for VM jobs failed on this one; tell the administrators of the site", "-1"},
		},
		"tasks of a node have the VMs' CPUs": {
			options: vms + `["ntasks-per-node"] = "3", ["cpus-per-task"] = "1"`, slurmv: "echo cpus:4,mem:3072",
			want: []string{"mincpus=4", "cpus-per-task=2", "mem=3072M", "0"},
		},
		"tasks of a node have enough CPUs": {
			options: vms + `["ntasks-per-node"] = "4"`, slurmv: "echo cpus:4,mem:3072", want: []string{"mincpus=4", "mem=3072M", "0"},
		},
		"the user's tasks are too small": {
			options: vms + `["ntasks-per-node"] = "1", ["cpus-per-task"] = "2"`, slurmv: "echo cpus:4,mem:3072",
			want: []string{"user: slurm-v: the VMs need 4 CPUs on each node, and --ntasks-per-node=1 with --cpus-per-task=2 gives fewer; " +
				"leave --cpus-per-task out", "-1"},
		},
		"sizes have units": {
			options: vms + `mem = "3G"`, slurmv: "echo cpus:4,mem:3072", want: []string{"mincpus=4", "mem=3072M", "0"},
		},
		"too little memory": {
			options: vms + `mem = "3071M"`, slurmv: "echo cpus:4,mem:3072",
			want: []string{"user: slurm-v: the VMs need 3072 MiB of memory on each node and --mem gives 3071; " +
				"leave it out or raise it", "-1"},
		},
		"tasks on a range of nodes": {
			options: vms + `ntasks = "8", nodes = "1-2", ["mem-per-cpu"] = "640"`, slurmv: "echo cpus:2,mem:2560",
			want: []string{"mincpus=2", "0"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bin := t.TempDir()
			if err := os.WriteFile(filepath.Join(bin, "slurmv"), []byte("#!/bin/sh\n"+tt.slurmv), 0o755); err != nil {
				t.Fatal(err)
			}
			got := run(t, cliFilter, "{"+tt.options+"}", "PATH="+bin+":"+os.Getenv("PATH"))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("sbatch saw (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSiteFilesKeepTheirOwnFunctions(t *testing.T) {
	site := `
slurm = { SUCCESS = 0, ERROR = -1 }
function slurm_job_submit() return "the site's" end
dofile("job_submit.lua")
print(slurm_job_submit({}), slurmv_job_submit ~= nil, slurm_job_modify == nil)
`
	if diff := cmp.Diff([]string{"the site's\ttrue\ttrue"}, run(t, site, "{}")); diff != "" {
		t.Errorf("the site's file has (-want +got):\n%s", diff)
	}
}

// Slurm refuses a job with a GRES that its configuration does not have.
func TestNoGRESUnlessTheSiteHasIt(t *testing.T) {
	for name, harness := range map[string]string{"job_submit.lua": jobSubmit, "cli_filter.lua": cliFilter} {
		without := strings.Replace(harness, "slurmv_gres = true", "", 1)
		arguments := `{ spank_job_env = { [0] = "SLURMV_REQUEST=cpus:4,mem:2560,vf:2,vfbw:10000" }, spank = { slurmv = { ["vm-per-node"] = "2", sriov = "1" } } }`
		for _, line := range run(t, without, arguments) {
			if strings.Contains(line, "vf") {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
}
