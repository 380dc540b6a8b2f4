package jobspec

import (
	"errors"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/slurm"
)

func variablesOf(pairs ...string) func(string) string {
	return func(name string) string {
		for _, pair := range pairs {
			if value, ok := strings.CutPrefix(pair, name+"="); ok {
				return value
			}
		}
		return ""
	}
}

// submitted returns the submission by this command line, which begins with the command.
func submitted(argv []string, script string, env func(string) string) slurm.Submission {
	return slurm.ReadCommandLine(argv, OptionNames()...).Submission(script, env)
}

// The rows with many options were compared with what Slurm 22.05 allocates.
func TestGranted(t *testing.T) {
	need := Resources{CPUsPerNode: 8, MemoryMiBPerNode: 17 << 10}
	const cpus, memory = "#SBATCH --mincpus=8", "#SBATCH --mem=17G"
	tests := map[string]struct {
		argv, script, variable string
		missing                string // lines, joined with a space
		remove                 string
	}{
		"nothing is asked":                  {"sbatch", "", "", cpus + " " + memory, ""},
		"the lines of the error":            {"sbatch", "#SBATCH --mincpus=8\n#SBATCH --mem=17G\n", "", "", ""},
		"on the command line":               {"sbatch --mincpus=8 --mem=17G x.sh", "", "", "", ""},
		"with spaces between":               {"sbatch --mincpus 8 --mem 17G x.sh", "", "", "", ""},
		"abbreviated":                       {"sbatch --minc=8 --mem=17G x.sh", "", "", "", ""},
		"an ambiguous abbreviation":         {"sbatch --m=8 --mem=17G x.sh", "", "", cpus, ""},
		"by a path":                         {"/opt/slurm/bin/sbatch --mincpus=8 --mem=17G x.sh", "", "", "", ""},
		"after a VM option with its value":  {"sbatch --vm-per-node 2 --mincpus=8 --mem=17G x.sh", "", "", "", ""},
		"after another option with one":     {"sbatch -p fast --time 5 -Jname --mincpus=8 --mem=17G x.sh", "", "", "", ""},
		"after flags":                       {"sbatch -vHk --parsable --nice --mincpus=8 --mem=17G x.sh", "", "", "", ""},
		"after another plugin's flag":       {"sbatch --container-mount-home --mincpus=8 --mem=17G x.sh", "", "", "", ""},
		"among the script's own arguments":  {"sbatch x.sh --mincpus=8 --mem=17G", "", "", cpus + " " + memory, ""},
		"after two dashes":                  {"sbatch -- --mincpus=8 --mem=17G", "", "", cpus + " " + memory, ""},
		"as another option's value":         {"sbatch --comment --mincpus=8 --mem=17G", "", "", cpus, ""},
		"in the script, after its commands": {"sbatch", "#!/bin/sh\ntrue\n#SBATCH --mincpus=8 --mem=17G\n", "", cpus + " " + memory, ""},
		"in the script, after comments":     {"sbatch", "#!/bin/sh\n\n  # x\n#\n#SBATCH --mincpus=8 --mem=17G\n", "", "", ""},
		"in the script, indented":           {"sbatch", " #SBATCH --mincpus=8 --mem=17G\n", "", cpus + " " + memory, ""},
		"in the script, in a comment":       {"sbatch", "#SBATCH --mincpus=8 # --mem=17G\n", "", memory, ""},
		"in the script, in quotes":          {"sbatch", "#SBATCH --comment=\"a # b\" '--mem=17G' --mincpus=\"8\"\n", "", "", ""},
		"in the script, without space":      {"sbatch", "#SBATCH--mincpus=8\n#SBATCH\t--mem=17G\n", "", "", ""},
		"in the script, over two lines":     {"sbatch", "#SBATCH --mincpus\n#SBATCH 8 --mem=17G\n", "", "", ""},
		"in a file that salloc runs":        {"salloc ./x.sh", "#SBATCH --mincpus=8 --mem=17G\n", "", "--mincpus=8 --mem=17G", ""},
		"of salloc":                         {"salloc --mincpus=8 --mem=17G", "", "", "", ""},

		"tasks per node":                     {"sbatch -N2 --ntasks-per-node=8 --mem=17G", "", "", "", ""},
		"tasks per node times CPUs per task": {"sbatch --ntasks-per-node=2 -c4 --mem=17G", "", "", "", ""},
		"CPUs per task alone":                {"sbatch -N2 -c 8 --mem=17G", "", "", "", ""},
		"CPUs per task, too few":             {"sbatch -N2 -c 4 --mem=17G", "", "", cpus, ""},
		"CPUs per task that do not divide":   {"sbatch -N2 -c 3 --mem=17G", "", "", cpus, "--cpus-per-task from the command line"},
		"mincpus that do not divide":         {"sbatch -N2 -c 3 --mincpus=8 --mem=17G", "", "", cpus, "--mincpus from the command line and --cpus-per-task from the command line"},
		"mincpus that divide":                {"sbatch -N2 -c 4 --mincpus=8 --mem=17G", "", "", "", ""},
		"mincpus above the tasks' own":       {"sbatch -c 3 --ntasks-per-node=2 --mincpus=9 --mem=17G", "", "", cpus, "--mincpus from the command line and --cpus-per-task from the command line"},
		"mincpus beside tasks per node":      {"sbatch -N2 --ntasks-per-node=2 --mincpus=8 --mem=17G", "", "", "", ""},
		"many tasks, unevenly spread":        {"sbatch -N2 -n16 --mem=17G", "", "", cpus, ""},
		"many tasks on one node":             {"sbatch -N1 -n8 --mem=17G", "", "", "", ""},
		"many tasks on 1-1 nodes":            {"sbatch -N1-1 -n8 --mem=17G", "", "", "", ""},
		"many tasks on one or two nodes":     {"sbatch -N1-2 -n8 --mem=17G", "", "", cpus, ""},
		"tasks that fill every node":         {"sbatch -N2 -n16 --ntasks-per-node=8 --mem=17G", "", "", "", ""},
		"tasks that do not":                  {"sbatch -N2 -n15 --ntasks-per-node=8 --mem=17G", "", "", cpus, ""},
		"tasks per node as a maximum":        {"sbatch -n16 --ntasks-per-node=8 --mem=17G", "", "", cpus, ""},
		"the whole node":                     {"sbatch --exclusive --mem=17G", "", "", "", ""},
		"the whole node in other words":      {"sbatch --exclusive=exclusive --mem=17G", "", "", "", ""},
		"the node for one user":              {"sbatch --exclusive=user --mem=17G", "", "", cpus, ""},
		"overcommitted":                      {"sbatch -O --mincpus=8 --mem=17G", "", "", cpus, "--mincpus from the command line and --overcommit from the command line"},
		"overcommitted, with CPUs per task":  {"sbatch -O -c8 --mem=17G", "", "", "", ""},
		"a number that is none":              {"sbatch --mincpus=8x --mem=17G", "", "", cpus, "--mincpus from the command line"},

		"memory in M":                      {"sbatch --mincpus=8 --mem=17408", "", "", "", ""},
		"memory one M short":               {"sbatch --mincpus=8 --mem=17407M", "", "", memory, "--mem from the command line"},
		"memory in K, rounded up":          {"sbatch --mincpus=8 --mem=17824769K", "", "", "", ""},
		"memory in GB":                     {"sbatch --mincpus=8 --mem=17gb", "", "", "", ""},
		"memory in an unknown unit":        {"sbatch --mincpus=8 --mem=17Q", "", "", memory, "--mem from the command line"},
		"all memory of the node":           {"sbatch --mincpus=8 --mem=0", "", "", "", ""},
		"memory per CPU":                   {"sbatch --mincpus=8 --mem-per-cpu=2176M", "", "", "", ""},
		"memory per CPU, too little":       {"sbatch --mincpus=8 --mem-per-cpu=2G", "", "", memory, "--mem-per-cpu from the command line"},
		"memory per CPU of more CPUs":      {"sbatch --mincpus=16 --mem-per-cpu=1088M", "", "", "", ""},
		"memory per CPU of the whole node": {"sbatch --exclusive --mem-per-cpu=2176M", "", "", "", ""},
		"memory per CPU, too few of them":  {"sbatch --mem-per-cpu=17G", "", "", cpus, ""},
		"all memory by CPU":                {"sbatch --mincpus=8 --mem-per-cpu=0", "", "", "", ""},
		"memory per GPU":                   {"sbatch --mincpus=8 --mem-per-gpu=17G", "", "", memory, "--mem-per-gpu from the command line"},

		"the last of two":                     {"sbatch --mincpus=8 --mem=17G --mem=1G", "", "", memory, "--mem from the command line"},
		"the command line over the script":    {"sbatch --mem=1G", "#SBATCH --mem=17G --mincpus=8\n", "", memory, "--mem from the command line"},
		"a variable":                          {"sbatch --mincpus=8", "", "SBATCH_MEM_PER_NODE=17G", "", ""},
		"a variable over the script":          {"sbatch", "#SBATCH --mem=17G --mincpus=8\n", "SBATCH_MEM_PER_NODE=1G", memory, "the variable SBATCH_MEM_PER_NODE"},
		"the command line over a variable":    {"sbatch --mem=17G --mincpus=8", "", "SBATCH_MEM_PER_NODE=1G", "", ""},
		"another memory option by a variable": {"sbatch --mincpus=8", "#SBATCH --mem-per-cpu=2176M\n", "SBATCH_MEM_PER_NODE=1G", "", ""},
		"salloc's variable of sbatch":         {"sbatch --mincpus=8", "", "SALLOC_MEM_PER_NODE=17G", memory, ""},
		"salloc's variable":                   {"salloc --mincpus=8", "", "SALLOC_MEM_PER_NODE=17G", "", ""},
		"overcommitted by a variable":         {"sbatch --mincpus=8 --mem=17G", "", "SBATCH_OVERCOMMIT=1", cpus, "--mincpus from the command line and the variable SBATCH_OVERCOMMIT"},
		"not overcommitted by a variable":     {"sbatch --mincpus=8 --mem=17G", "", "SBATCH_OVERCOMMIT=no", "", ""},
		"the node for one user by a variable": {"sbatch --exclusive --mem=17G", "", "SBATCH_EXCLUSIVE=user", "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := Granted(need, submitted(strings.Fields(tt.argv), tt.script, variablesOf(tt.variable)))
			if err == nil {
				if tt.missing != "" {
					t.Errorf("%s is taken for enough", tt.argv)
				}
				return
			}
			want := strings.ReplaceAll(tt.missing, " #", "\n#")
			if tt.missing == "" || !strings.HasSuffix(err.Error(), ": "+want) && !strings.HasSuffix(err.Error(), ":\n"+want) {
				t.Errorf("error = %v\nwant the lines %q", err, want)
			}
			_, after, removes := strings.Cut(err.Error(), "remove ")
			remove, _, _ := strings.Cut(after, ", and add")
			if removes != (tt.remove != "") || remove != tt.remove {
				t.Errorf("error = %v\nwant to remove %q", err, tt.remove)
			}
		})
	}
}

func TestGrantedSaysEverything(t *testing.T) {
	need := Resources{CPUsPerNode: 4, MemoryMiBPerNode: 2560, VFsPerNode: 4, VFMbpsPerNode: 80000, VFsCounted: true}
	err := Granted(need, submitted([]string{"sbatch", "-O", "job.sh"}, "#SBATCH --mem-per-cpu=1G --gres=gpu:1,vf:4\n", noEnv))
	const want = "the VMs need 4 CPUs, 2560M of memory and 4 VFs with 80000 Mb/s on every node, and the job does not ask for that; " +
		"remove --overcommit from the command line, --mem-per-cpu from the batch script and --gres from the batch script, " +
		"and add to the batch script:\n#SBATCH --mincpus=4\n#SBATCH --mem=2560M\n#SBATCH --gres=gpu:1,vf:4,vfbw:80000"
	if err == nil || err.Error() != want {
		t.Errorf("error = %v\nwant    %s", err, want)
	}
}

func TestGrantedVFs(t *testing.T) {
	reserved := Resources{VFsPerNode: 4, VFMbpsPerNode: 80000, VFsCounted: true}
	plain := Resources{VFsPerNode: 4, VFsCounted: true}
	tests := map[string]struct {
		need     Resources
		argv     string
		variable string
		missing  string
		remove   string
	}{
		"nothing is asked":                {reserved, "sbatch x.sh", "", "vf:4,vfbw:80000", ""},
		"everything is asked":             {reserved, "sbatch --gres=vf:4,vfbw:80000 x.sh", "", "", ""},
		"in other forms":                  {reserved, "sbatch --gres gres/vfbw=80000,gres:vf:4 x.sh", "", "", ""},
		"in parts":                        {reserved, "sbatch --gres=vf:fast:3,vf,vfbw:40000,vfbw:a:40000 x.sh", "", "", ""},
		"nothing reserved":                {plain, "sbatch --gres=vf:4 x.sh", "", "", ""},
		"one VF short":                    {plain, "sbatch --gres=vf:3 x.sh", "", "vf:4", "--gres from the command line"},
		"one Mb/s short":                  {reserved, "sbatch --gres=vf:4,vfbw:79999 x.sh", "", "vf:4,vfbw:80000", "--gres from the command line"},
		"no bandwidth":                    {reserved, "sbatch --gres=vf:4 x.sh", "", "vf:4,vfbw:80000", "--gres from the command line"},
		"a letter is a power of 1024":     {reserved, "sbatch --gres=vf:4,vfbw:79k x.sh", "", "", ""},
		"which may be too little":         {reserved, "sbatch --gres=vf:4,vfbw:78K x.sh", "", "vf:4,vfbw:80000", "--gres from the command line"},
		"a number beyond any is enough":   {reserved, "sbatch --gres=vf:16384P,vfbw:9999999999999p x.sh", "", "", ""},
		"a number that is none":           {plain, "sbatch --gres=vf:many x.sh", "", "vf:4", "--gres from the command line"},
		"other devices are kept":          {plain, "sbatch --gres=gpu:a:2,vf,fpga x.sh", "", "gpu:a:2,fpga,vf:4", "--gres from the command line"},
		"an odd one is not":               {plain, "sbatch --gres=gpu,x'y,vf x.sh", "", "gpu,vf:4", "--gres from the command line"},
		"a similar name is another":       {plain, "sbatch --gres=vfx:4 x.sh", "", "vfx:4,vf:4", "--gres from the command line"},
		"a variable":                      {plain, "sbatch x.sh", "SBATCH_GRES=vf:4", "", ""},
		"a variable that is too little":   {plain, "sbatch x.sh", "SBATCH_GRES=vf:1", "vf:4", "the variable SBATCH_GRES"},
		"a job without VFs":               {Resources{VFsCounted: true}, "sbatch x.sh", "", "", ""},
		"a site that does not count them": {Resources{VFsPerNode: 4}, "sbatch x.sh", "", "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			want := ""
			if tt.missing != "" {
				words := map[bool]string{true: "4 VFs with 80000 Mb/s", false: "4 VFs"}[tt.need.VFMbpsPerNode > 0]
				want = "the VMs need " + words + " on every node, and the job does not ask for that; "
				if tt.remove != "" {
					want += "remove " + tt.remove + ", and "
				}
				want += "add to the batch script:\n#SBATCH --gres=" + tt.missing
			}
			got := ""
			if err := Granted(tt.need, submitted(strings.Fields(tt.argv), "", variablesOf(tt.variable))); err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("error = %s\nwant    %s", got, want)
			}
		})
	}
}

// However odd a submission is, following the error's advice is enough: with the lines
// added and the named options removed, the job is granted.
func FuzzGranted(f *testing.F) {
	f.Add("sbatch\n-O\n-c3\n--mem=1G\nx.sh", "#SBATCH --mem-per-cpu=1G\n#SBATCH -n 4", "2", uint8(8))
	f.Add("salloc\n-Hc4\n--exclusive=user\n:", "", "1G", uint8(1))
	f.Add("", "#SBATCH 'a\\\n#SBATCH --ntasks-per-node 3 -c5 --mincpus=9", "", uint8(64))
	f.Add("sbatch\n--gres=gpu:1,vf:2k,vfbw\nx.sh", "#SBATCH --gres=vf", "vf:3", uint8(3))
	f.Add("sbatch\n-\xff\xffc", "", "", uint8(1))
	f.Fuzz(func(t *testing.T, argv, script, variable string, cpus uint8) {
		need := Resources{CPUsPerNode: 1 + int(cpus), MemoryMiBPerNode: 17 << 10, VFsPerNode: 2, VFMbpsPerNode: 5000, VFsCounted: true}
		env := func(name string) string {
			if strings.HasSuffix(name, "_MEM_PER_NODE") || strings.HasSuffix(name, "_GRES") {
				return variable
			}
			return ""
		}
		err := Granted(need, submitted(strings.Split(argv, "\n"), script, env))
		if err == nil {
			return
		}
		var short shortage
		if !errors.As(err, &short) {
			t.Fatalf("%v is not about a shortage", err)
		}
		_, lines := short.missing()
		followed := short.sub.Without(short.inTheWay()...).WithScript(strings.Join(lines, "\n"))
		if followed.CPUs() < need.CPUsPerNode || followed.MemoryMiB(need.CPUsPerNode) < need.MemoryMiBPerNode {
			t.Errorf("after %v\nthe job has %d CPUs and %d MiB", err, followed.CPUs(), followed.MemoryMiB(need.CPUsPerNode))
		}
		if (shortage{sub: followed, need: need}).ofVFs() {
			t.Errorf("after %v\nthe job has the GRES %q", err, followed.GRES())
		}
	})
}
