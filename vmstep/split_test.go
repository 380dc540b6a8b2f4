package vmstep

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/slurm"
)

const pluginHelp = `
      --launch-in=place       another plugin's option
      --polish[=how]          polish
      --loud                  be loud
`

func noEnv(string) string { return "" }

func TestSplit(t *testing.T) {
	tests := map[string]struct {
		words   string
		srun    string
		program string
		dist    string
	}{
		"only a program":                    {words: "./app -n 3", program: "./app -n 3"},
		"a short option and its value":      {words: "-n 4 ./app", srun: "-n 4", program: "./app"},
		"a short option with value":         {words: "-n4 ./app", srun: "-n4", program: "./app"},
		"flags together":                    {words: "-lvN 2 ./app", srun: "-lvN 2", program: "./app"},
		"flags together with a value":       {words: "-lN2 ./app", srun: "-lN2", program: "./app"},
		"an optional value is never a word": {words: "-K ./app", srun: "-K", program: "./app"},
		"an optional value behind":          {words: "-K0 -I60 ./app", srun: "-K0 -I60", program: "./app"},
		"a long option and its value":       {words: "--ntasks 4 ./app", srun: "--ntasks 4", program: "./app"},
		"a long option with value":          {words: "--ntasks=4 ./app", srun: "--ntasks=4", program: "./app"},
		"a long flag":                       {words: "--label ./app", srun: "--label", program: "./app"},
		"a long optional value":             {words: "--kill-on-bad-exit ./app", srun: "--kill-on-bad-exit", program: "./app"},
		"a shortened option":                {words: "--ntasks-per-n 2 ./app", srun: "--ntasks-per-n 2", program: "./app"},
		"two minuses end the options":       {words: "-n 4 -- -app", srun: "-n 4", program: "-app"},
		"another plugin's option":           {words: "--launch-in here ./app", srun: "--launch-in here", program: "./app"},
		"another plugin's optional value":   {words: "--polish ./app", srun: "--polish", program: "./app"},
		"another plugin's flag":             {words: "--loud ./app", srun: "--loud", program: "./app"},
		"our distribution":                  {words: "-l --vm-distribution=cyclic -n 4 ./app", srun: "-l -n 4", program: "./app", dist: "cyclic"},
		"our distribution as two words":     {words: "--vm-distribution block ./app", program: "./app", dist: "block"},
		"options behind the program":        {words: "./app --vm-distribution=wild --pty", program: "./app --vm-distribution=wild --pty"},
		"a minus is a program":              {words: "-n 1 -", srun: "-n 1", program: "-"},
		"PMIx is ours":                      {words: "--mpi pmix ./app", srun: "--mpi=pmi2", program: "./app"},
		"mpi as it is":                      {words: "--mpi=pmi2 ./app", srun: "--mpi=pmi2", program: "./app"},
		"no mpi":                            {words: "--mpi none ./app", srun: "--mpi none", program: "./app"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := Split(strings.Fields(tt.words), noEnv, func() string { return pluginHelp })
			if err != nil {
				t.Fatal(err)
			}
			if tt.dist == "" {
				tt.dist = "block"
			}
			got := []string{strings.Join(c.Srun, " "), strings.Join(c.Program, " "), c.Distribution}
			if diff := cmp.Diff([]string{tt.srun, tt.program, tt.dist}, got); diff != "" {
				t.Errorf("options, program, distribution differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSplitRefuses(t *testing.T) {
	tests := map[string]struct{ words, want string }{
		"nothing":                    {"", "no program to run"},
		"options only":               {"-n 4", "no program to run"},
		"a missing value":            {"-n", "-n (--ntasks) needs a value"},
		"a missing long value":       {"--ntasks", "--ntasks needs a value"},
		"an unknown option":          {"--frobnicate ./app", "--frobnicate is no option"},
		"an ambiguous option":        {"--nt 3 ./app", "--nt is no option"},
		"an unknown letter":          {"-y ./app", "-y is no option"},
		"a wild distribution":        {"--vm-distribution=wild ./app", `"wild" is not one of block, cyclic`},
		"a wild launcher":            {"--launcher=rsh ./app", `"rsh" is not one of srun, ssh`},
		"libraries and a program":    {"--list-mpi ./app", "--list-mpi comes alone"},
		"shared memory of a kind":    {"--mpi-shm=yes ./app", `--mpi-shm: "yes" is not one of auto, on, off`},
		"shared memory by ssh":       {"--mpi-shm=on --launcher=ssh mpirun ./app", "leave out --launcher=ssh"},
		"shared memory without MPI":  {"--mpi-shm=on --mpi=none ./app", "leave out --launcher=ssh and --mpi=none"},
		"libraries by ssh":           {"--list-mpi --launcher=ssh", "--list-mpi comes alone"},
		"a PMIx of no version":       {"--mpi=pmix_v ./app", "only pmi2 (the default), pmix and none"},
		"PMI-1":                      {"--mpi=pmi1 ./app", "only pmi2 (the default), pmix and none"},
		"a heterogeneous job":        {"--het-group=1 ./app", "heterogeneous"},
		"a terminal":                 {"--pty bash", "slurmv exec -t"},
		"several programs":           {"--multi-prog conf", "--multi-prog does not work"},
		"several commands":           {"-n 1 ./a : -n 2 ./b", "the start of another command"},
		"VM options":                 {"--vm-per-node=2 ./app", "sbatch"},
		"start and a program":        {"--start ./app", "--start only starts"},
		"a value for start":          {"--start=yes", "--start takes no value"},
		"no allocation":              {"-Z -w n1 ./app", "--no-allocate does not work"},
		"a shortened forbidden one":  {"--multi conf", "--multi-prog does not work"},
		"a forbidden one among some": {"-lvZ ./app", "--no-allocate does not work"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Split(strings.Fields(tt.words), noEnv, func() string { return pluginHelp + "      --vm-per-node=N  VMs\n" })
			var usage *UsageError
			if !errors.As(err, &usage) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want a usage error with %q", err, tt.want)
			}
		})
	}
}

func TestSplitAsksForHelpOnlyWhenItMust(t *testing.T) {
	_, err := Split([]string{"--ntasks=3", "-l", "./app"}, noEnv, func() string {
		t.Error("srun --help was asked")
		return ""
	})
	if err != nil {
		t.Error(err)
	}
}

func TestProgramCommand(t *testing.T) {
	tests := map[string]struct {
		words  string
		ticket Ticket
		want   string
	}{
		"the usual": {"-n 4 ./app x", Ticket{},
			"/bin/srun --overlap --mpi=pmi2 --job-name=app -n 4 /libexec/relay --vm-distribution=block -- ./app x"},
		"no MPI": {"--mpi=none ./app", Ticket{},
			"/bin/srun --overlap --mpi=pmi2 --job-name=app --mpi=none /libexec/relay --vm-distribution=block -- ./app"},
		"PMIx, and the user's will": {"--mpi=pmix --kill-on-bad-exit=0 ./app", Ticket{},
			"/bin/srun --overlap --mpi=pmi2 --job-name=app --kill-on-bad-exit=1 --mpi=pmi2 --kill-on-bad-exit=0 /libexec/relay --vm-distribution=block --pmix --spare-ranks -- ./app"},
		"a user who wants ranks to live on": {"-K0 ./app", Ticket{},
			"/bin/srun --overlap --mpi=pmi2 --job-name=app -K0 /libexec/relay --vm-distribution=block --spare-ranks -- ./app"},
		"exclusive says no overlap": {"--exclusive ./app", Ticket{},
			"/bin/srun --mpi=pmi2 --job-name=app --exclusive /libexec/relay --vm-distribution=block -- ./app"},
		"VMs that come up elsewhere": {"--vm-distribution=cyclic ./app", Ticket{Wait: 5 * time.Minute},
			"/bin/srun --overlap --mpi=pmi2 --job-name=app /libexec/relay --vm-distribution=cyclic --wait=5m0s -- ./app"},
		"a claimed device": {"--no-wait ./app", Ticket{Claim: &nodeagent.Claim{Device: 1, Number: 5}},
			"/bin/srun --overlap --mpi=pmi2 --job-name=app --kill-on-bad-exit=1 /libexec/relay --vm-distribution=block --claim=1.5 --mpi-shm=auto -- ./app"},
		"a claimed device, quietly": {"-Q --mpi-shm=on ./app", Ticket{Claim: &nodeagent.Claim{Device: 1, Number: 5}},
			"/bin/srun --overlap --mpi=pmi2 --job-name=app --kill-on-bad-exit=1 -Q /libexec/relay --vm-distribution=block --claim=1.5 --mpi-shm=on --quiet -- ./app"},
		"a claimed device that MPI leaves alone": {"--mpi-shm=off ./app", Ticket{Claim: &nodeagent.Claim{Device: 1, Number: 5}},
			"/bin/srun --overlap --mpi=pmi2 --job-name=app /libexec/relay --vm-distribution=block --claim=1.5 --mpi-shm=off -- ./app"},
		"a claimed device, no MPI": {"--mpi=none ./app", Ticket{Claim: &nodeagent.Claim{Device: 1, Number: 5}},
			"/bin/srun --overlap --mpi=pmi2 --job-name=app --mpi=none /libexec/relay --vm-distribution=block --claim=1.5 --mpi-shm=auto -- ./app"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := Split(strings.Fields(tt.words), noEnv, func() string { return "" })
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(ProgramCommand("/bin/srun", "/libexec/relay", c, tt.ticket), " ")
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("command differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMpirunCommand(t *testing.T) {
	tests := map[string]struct {
		words  string
		ticket Ticket
		want   string
	}{
		"the usual": {"--launcher=ssh mpirun -n 8 ./app", Ticket{},
			"--job-name=mpirun --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist=n1 /libexec/relay --vm=0 --mpirun -- mpirun -n 8 ./app"},
		"srun's options": {"--launcher=ssh -o out --label sh -c x", Ticket{},
			"--job-name=sh --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist=n1 -o out --label /libexec/relay --vm=0 --mpirun -- sh -c x"},
		"VMs that come up elsewhere, a claimed device": {"--launcher=ssh mpirun", Ticket{Wait: time.Minute, Claim: &nodeagent.Claim{Number: 5}},
			"--job-name=mpirun --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist=n1 /libexec/relay --vm=0 --mpirun --wait=1m0s --claim=0.5 -- mpirun"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := Split(strings.Fields(tt.words), noEnv, func() string { return "" })
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(MpirunCommand("/bin/srun", "/libexec/relay", "n1", c, tt.ticket), " ")
			want := "/bin/srun --overlap --mpi=none --cpu-bind=none --mem=0 " + tt.want
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("command differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOptionsThatMpirunDecides(t *testing.T) {
	for _, words := range []string{"-n 8", "-N2", "--ntasks-per-node=2", "-w n1", "--mpi=none", "--vm-distribution=cyclic", "--exclusive"} {
		_, err := Split(append(strings.Fields("--launcher=ssh "+words), "mpirun"), noEnv, func() string { return "" })
		var usage *UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), "does not work with --launcher=ssh") {
			t.Errorf("%s: error = %v", words, err)
		}
		if _, err := Split(append(strings.Fields(words), "./app"), noEnv, func() string { return "" }); err != nil {
			t.Errorf("%s without --launcher=ssh: %v", words, err)
		}
	}
	for _, name := range mpiruns {
		if o, _ := slurm.SrunOptions().Parse([]string{"--" + name}); !o[0].Known && own[name] == slurm.NoValue {
			t.Errorf("--%s is no option of srun's", name)
		}
	}
}

func TestShortCommand(t *testing.T) {
	tests := map[string]struct {
		at   Placement
		want string
	}{
		"on every node": {OnNodes(3, 1), " --nodes=3 --ntasks=3 --ntasks-per-node=1 agent query key"},
		"in every VM":   {OnNodes(3, 2), " --nodes=3 --ntasks=6 --ntasks-per-node=2 agent query key"},
		"on one node":   {OnNode("n1"), " --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist=n1 agent query key"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(ShortCommand("srun", tt.at, "agent", "query", "key"), " "); !strings.HasSuffix(got, tt.want) {
				t.Errorf("command = %s, want %s at its end", got, tt.want)
			}
		})
	}
}

func TestSplitListsMPI(t *testing.T) {
	c, err := Split([]string{"-Q", "--list-mpi"}, noEnv, func() string { return "" })
	want := "-Q --nodes=1 --ntasks=1 --job-name=list-mpi"
	if err != nil || strings.Join(c.Srun, " ") != want || len(c.Program) != 3 || !strings.Contains(c.Program[2], "ompi_info") {
		t.Errorf("srun %q, program %q, %v", c.Srun, c.Program, err)
	}
}

// The variable is the default of the option, as for srun.
func TestPMIxIsChosen(t *testing.T) {
	tests := map[string]struct {
		words, variable string
		want            bool
	}{
		"by nothing":                         {"./app", "", false},
		"by the option":                      {"--mpi=pmix ./app", "", true},
		"by a plugin's version":              {"--mpi=pmix_v4 ./app", "", true},
		"by the variable":                    {"./app", "pmix", true},
		"by the variable, with a version":    {"./app", "pmix_v5", true},
		"not, since the option says another": {"--mpi=pmi2 ./app", "pmix", false},
		"not, since the last option counts":  {"--mpi=pmix --mpi=none ./app", "", false},
		"not, since the variable is no PMIx": {"./app", "cray_shasta", false},
		"not, since mpirun starts the tasks": {"--launcher=ssh mpirun", "pmix", false},
		"not, since a shell lists libraries": {"--list-mpi", "pmix", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			env := func(name string) string { return map[string]string{"SLURM_MPI_TYPE": tt.variable}[name] }
			c, err := Split(strings.Fields(tt.words), env, func() string { return "" })
			if err != nil || c.PMIx != tt.want {
				t.Errorf("PMIx: %v, want %v (%v)", c.PMIx, tt.want, err)
			}
			command, _, _ := strings.Cut(strings.Join(ProgramCommand("srun", "relay", c, Ticket{}), " "), " -- ")
			if strings.Contains(command, " --pmix") != tt.want || strings.Contains(command, "--mpi=pmix") {
				t.Errorf("command = %s", command)
			}
		})
	}
}
