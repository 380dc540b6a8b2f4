package vmstep

import (
	_ "embed" // listmpi.sh
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/slurm-v/slurm-v/internal/imagempi"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/slurm"
)

// A CommandLine is the words behind slurm-v-run.
type CommandLine struct {
	Distribution string // "block" or "cyclic"
	Launcher     string // "srun" or "ssh"
	Start        bool   // only start the VMs
	ListMPI      bool   // run a program that lists the image's MPI libraries
	MPIShared    string // how MPI uses the memory of an IVShmem device: auto, on or off
	NoWait       bool   // fail if the run would have to wait for an IVShmem device
	Help         bool
	Version      bool

	Srun    []string // options for srun, as typed
	PMIx    bool     // the program finds its ranks by PMIx
	Program []string // the program and its arguments

	given map[string]string // options by long name, the last value of each
}

// A UsageError is a command line that cannot be run.
type UsageError struct{ Reason string }

func (e *UsageError) Error() string { return e.Reason }

func usagef(format string, args ...any) error {
	return &UsageError{fmt.Sprintf(format, args...)}
}

// Given returns the value of an option and whether the option was on the command line. An
// option without a value has the value "".
func (c CommandLine) Given(option string) (string, bool) {
	value, ok := c.given[option]
	return value, ok
}

// own are slurm-v-run's options.
var own = map[string]slurm.Argument{
	"vm-distribution": slurm.RequiredValue,
	"launcher":        slurm.RequiredValue,
	"start":           slurm.NoValue,
	"list-mpi":        slurm.NoValue,
	"mpi-shm":         slurm.RequiredValue,
	"no-wait":         slurm.NoValue,
	"help":            slurm.NoValue,
	"version":         slurm.NoValue,
}

// Split divides the words behind slurm-v-run into its own options, srun's options, and the
// program. env returns a variable of the environment. help returns the text of srun --help;
// Split calls it only for an option that Slurm itself does not have.
func Split(words []string, env func(string) string, help func() string) (CommandLine, error) {
	c := CommandLine{Distribution: "block", Launcher: "srun", MPIShared: MPISharedAuto, given: map[string]string{}}
	grammar := slurm.SrunOptions()
	grammar.Own = own
	grammar.Plugins = sync.OnceValue(func() map[string]slurm.Argument { return slurm.ParseHelp(help()) })
	options, rest := grammar.Parse(words)
	for _, o := range options {
		if err := c.take(o); err != nil {
			return c, err
		}
	}
	if len(rest) > 0 && rest[0] == "--" {
		rest = rest[1:]
	}
	c.Program = rest
	c.obey(env)
	if err := c.check(); err != nil {
		return c, err
	}
	if c.ListMPI {
		c.Program, c.Srun = []string{"sh", "-c", imagempi.Shell + listMPI}, append(c.Srun, "--nodes=1", "--ntasks=1", "--job-name=list-mpi")
	}
	return c, nil
}

// listMPI is a shell script that prints which MPI libraries the image has.
//
//go:embed listmpi.sh
var listMPI string

// take sets an option of slurm-v-run, and passes any other option's words on to srun.
func (c *CommandLine) take(o slurm.Option) error {
	switch {
	case !o.Known && o.Letter != 0:
		return usagef("-%c is no option of srun; see srun --help", o.Letter)
	case !o.Known:
		return usagef("--%s is no option of slurm-v-run or srun; see slurm-v-run --help and srun --help", o.Name)
	case o.Missing() && o.Letter != 0:
		return usagef("-%c (--%s) needs a value", o.Letter, o.Name)
	case o.Missing():
		return usagef("--%s needs a value", o.Name)
	}
	c.given[o.Name] = o.Value
	if _, mine := own[o.Name]; mine && o.Letter == 0 {
		return c.setOwn(o)
	}
	c.Help, c.Version = c.Help || o.Name == "help", c.Version || o.Name == "version"
	if o.Name == "mpi" {
		c.PMIx = isPMIx(o.Value)
	}
	if o.Name == "mpi" && c.PMIx {
		o.Words = []string{"--mpi=pmi2"}
	}
	c.Srun = append(c.Srun, o.Words...)
	return nil
}

// isPMIx reports whether srun's --mpi has one of Slurm's PMIx plugins as its value: pmix, pmix_v4. Here they are all the
// same, since the image's own library is used.
func isPMIx(mpi string) bool {
	version, versioned := strings.CutPrefix(mpi, "pmix_v")
	return mpi == "pmix" || versioned && version != "" && strings.Trim(version, "0123456789") == ""
}

// obey takes the default of --mpi from the environment, as srun does, but only PMIx: pmi2, the default here, serves
// programs without MPI, too, and other values do not reach into a VM.
func (c *CommandLine) obey(env func(string) string) {
	if _, given := c.given["mpi"]; !given && c.Launcher == "srun" && !c.ListMPI && !c.Start {
		c.PMIx = isPMIx(env("SLURM_MPI_TYPE"))
	}
}

func (c *CommandLine) setOwn(o slurm.Option) error {
	if o.Takes == slurm.NoValue && o.Given {
		return usagef("--%s takes no value", o.Name)
	}
	switch o.Name {
	case "vm-distribution":
		c.Distribution = o.Value
		return oneOf(o, "block", "cyclic")
	case "launcher":
		c.Launcher = o.Value
		return oneOf(o, "srun", "ssh")
	case "start":
		c.Start = true
	case "list-mpi":
		c.ListMPI = true
	case "mpi-shm":
		c.MPIShared = o.Value
		return oneOf(o, MPISharedAuto, MPISharedOn, MPISharedOff)
	case "no-wait":
		c.NoWait = true
	case "help":
		c.Help = true
	case "version":
		c.Version = true
	}
	return nil
}

func oneOf(o slurm.Option, allowed ...string) error {
	if !slices.Contains(allowed, o.Value) {
		return usagef("--%s: %q is not one of %s", o.Name, o.Value, strings.Join(allowed, ", "))
	}
	return nil
}

// refused are options of srun that cannot work here, with advice for users.
var refused = map[string]string{
	"het-group":         "VMs are not available in heterogeneous jobs",
	"pack-group":        "VMs are not available in heterogeneous jobs",
	"multi-prog":        "start the programs with one slurm-v-run each",
	"no-allocate":       "the VMs belong to an allocation",
	"pty":               "use slurmv exec -t for a terminal in a VM",
	"bcast":             "copy the program to a directory which the VMs mount",
	"container":         "the program already has a machine of its own",
	"external-launcher": "use --launcher=ssh to run your own mpirun",
	"usage":             "see slurm-v-run --help",
}

// mpis are the ways in which the ranks of a program find each other. pmix is Slurm's pmi2 with a
// PMIx server in the VM.
var mpis = []string{"pmi2", "pmix", "none"}

// mpiruns are options of srun that --launcher=ssh refuses. Some are about decisions that
// mpirun makes; the others make a step in which mpirun cannot run.
var mpiruns = strings.Fields(`cpu-bind cpus-per-task distribution exclude exclusive mpi nodefile nodelist nodes ntasks
	ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket ntasks-per-tres overcommit relative spread-job
	use-min-nodes vm-distribution`)

// checkMpirun refuses options that would have no effect with --launcher=ssh, where one task
// runs mpirun.
func (c CommandLine) checkMpirun() error {
	if c.Launcher != "ssh" {
		return nil
	}
	for _, option := range mpiruns {
		if _, ok := c.given[option]; ok {
			return usagef("--%s does not work with --launcher=ssh: mpirun decides which tasks run where, so give it the options for that, as in slurm-v-run --launcher=ssh mpirun -n 8 ./app", option)
		}
	}
	return nil
}

// check refuses command lines that would fail later or do something unexpected.
func (c CommandLine) check() error {
	if c.Help || c.Version {
		return nil
	}
	for _, option := range slices.Sorted(maps.Keys(refused)) {
		if _, ok := c.given[option]; ok {
			return usagef("--%s does not work with slurm-v-run: %s", option, refused[option])
		}
	}
	// The options that make VMs: srun would accept and ignore them.
	for _, option := range jobspec.Options {
		if _, ok := c.given[option.Name]; ok {
			return usagef("--%s comes too late: give it to sbatch or salloc, which decide about the VMs of a job", option.Name)
		}
	}
	if mpi, ok := c.given["mpi"]; ok && !slices.Contains(mpis, mpi) && !isPMIx(mpi) {
		return usagef("--mpi=%s does not work with slurm-v-run: only pmi2 (the default), pmix and none reach into a VM; --list-mpi lists the image's MPI libraries", mpi)
	}
	if slices.Contains(c.Program, ":") {
		return usagef("srun takes the argument \":\" for the start of another command: start each with a slurm-v-run of its own")
	}
	if err := c.checkMpirun(); err != nil {
		return err
	}
	switch {
	case c.Start && len(c.Program) > 0:
		return usagef("--start only starts the VMs: leave out %q, or leave out --start", c.Program[0])
	case c.MPIShared == MPISharedOn && (c.Launcher == "ssh" || c.given["mpi"] == "none"):
		return usagef("--mpi-shm=on: only ranks that slurm-v-run starts with PMI share memory, so leave out --launcher=ssh and --mpi=none")
	case c.ListMPI && (c.Start || c.Launcher == "ssh" || len(c.Program) > 0):
		return usagef("--list-mpi comes alone: it runs no program and needs no launcher")
	case !c.Start && !c.ListMPI && len(c.Program) == 0:
		return usagef("no program to run; usage: slurm-v-run [srun options] program [arguments]")
	}
	return nil
}
