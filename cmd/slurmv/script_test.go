package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/slurm-v/slurm-v/fabric/commands"
	"github.com/slurm-v/slurm-v/fabric/commands/oncontroller"
	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/sshkey"
	"github.com/slurm-v/slurm-v/vmstep"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"slurmv": func() {
			if !commands.NothingToReserve(os.Args, os.Getenv) {
				os.Exit(cli.Main(newRoot(oncontroller.Commands{})))
			}
		},
		"squeue":   func() { os.Exit(playSqueue()) },
		"scontrol": func() { os.Exit(playScontrol()) },
		"sacct":    func() { os.Exit(playFile("sacct")) },
		"srun":     func() { os.Exit(playSrun()) },
		"sudo":     func() { os.Exit(playSudo()) },
		"ssh":      func() { os.Exit(playSSH()) },
		"salloc":   func() { fmt.Println(strings.Join(os.Args[1:], " ")) },
		"sbatch":   playSbatch,
		"slurm-v-run": func() {
			if slices.Contains(os.Args, "sh") {
				os.Exit(playFile("facts"))
			}
			fmt.Print("Usage: slurm-v-run [srun options] program\n       slurm-v-run --start\n\nRun a program in VMs.\n")
		},
	})
}

// The scripts run with programs that play Slurm. What they know lies in files of
// the script: squeue's lines in steps and jobs, and a file per node with what its
// agent says. Every srun leaves its command line in srun.log.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("PLAY", e.WorkDir)
			site := "[paths]\nrun = \"" + e.WorkDir + "/run\"\n"
			if err := os.WriteFile(e.WorkDir+"/paths.toml", []byte(site), 0o600); err != nil {
				return err
			}
			e.Setenv("GORACE", "atexit_sleep_ms=0") // else each program waits a second at its end
			e.Setenv("SQUEUE_FORMAT", "nonsense of the user's")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "await": await},
	})
}

// exits N PROGRAM ARGUMENT... checks the exit status.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	code := "0"
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		code = strconv.Itoa(exit.ExitCode())
	}
	if code != args[0] {
		ts.Fatalf("exit status %s instead of %s", code, args[0])
	}
}

// await FILE waits until the file is there.
func await(ts *testscript.TestScript, _ bool, args []string) {
	for range 1000 {
		if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	ts.Fatalf("%s does not come", args[0])
}

func playPath(name string) string { return filepath.Join(os.Getenv("PLAY"), name) }

// playFile prints a file, or fails as Slurm does about a job that it has forgotten.
func playFile(name string) int {
	text, err := os.ReadFile(playPath(name))
	if err != nil {
		fmt.Fprintln(os.Stderr, "slurm_load_jobs error: Invalid job id specified")
		return 1
	}
	fmt.Print(strings.ReplaceAll(strings.ReplaceAll(string(text), "$WORK", os.Getenv("PLAY")), "WorkDir=run", "WorkDir="+playPath("run")))
	return 0
}

func option(name string) string {
	for _, arg := range os.Args {
		if value, found := strings.CutPrefix(arg, "--"+name+"="); found {
			return value
		}
	}
	return ""
}

// playSqueue prints the steps or jobs that are asked for. A line begins with the
// job's number.
func playSqueue() int {
	if os.Getenv("SQUEUE_FORMAT") != "" || os.Getenv("SLURM_TIME_FORMAT") != "%s" {
		fmt.Fprintln(os.Stderr, "squeue: error: the user's settings reshape the answer")
		return 1
	}
	file := "jobs"
	if slices.Contains(os.Args, "--steps") {
		file = "steps"
	}
	text, _ := os.ReadFile(playPath(file))
	wanted := strings.Split(option("jobs"), ",")
	for line := range strings.Lines(string(text)) {
		f := strings.Split(line, "|")
		array, _, _ := strings.Cut(f[1], ".")
		base, _, _ := strings.Cut(array, "_")
		mine := !slices.Contains(os.Args, "--me") || f[2] == "alice"
		named := wanted[0] == "" || slices.Contains(wanted, f[0]) || slices.Contains(wanted, array) || slices.Contains(wanted, base)
		if mine && named {
			fmt.Print(line)
		}
	}
	return 0
}

func playScontrol() int { return playFile("scontrol." + os.Args[len(os.Args)-1]) }

// playSrun runs the agent's part on each node that is asked for.
func playSrun() int {
	log, err := os.OpenFile(playPath("srun.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(log, strings.Join(os.Args[1:], " "))
	for _, name := range []string{"SLURM_JOB_ID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_SPANK_SLURMV_SPEC"} {
		if value := os.Getenv(name); value != "" {
			fmt.Fprintln(os.Stderr, "srun: error:", name, "reached the step:", value)
			return 1
		}
	}
	program := slices.IndexFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "/") })
	words := os.Args[program+1:]
	if strings.HasSuffix(os.Args[program], "/slurmv-relay") {
		return playExec(words)
	}
	status := 0
	nodes, _ := filepath.Glob(playPath("nodes." + option("jobid") + "/*"))
	for _, path := range nodes {
		if node := filepath.Base(path); option("nodelist") == "" || option("nodelist") == node {
			status = max(status, playAgent(path, node, words[1:]))
		}
	}
	return status
}

// playAgent answers slurmv-agent query as the file of the node says: its VMs, or
// words that begin with "refuse", "srun" or "requeued". A file refuse.OPERATION is a refusal, too.
func playAgent(path, node string, words []string) int {
	fmt.Println("a line of the site's TaskProlog")
	text, _ := os.ReadFile(path)
	if no, err := os.ReadFile(playPath("refuse." + words[0])); err == nil {
		text = append([]byte("refuse "), no...)
	}
	word, rest, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	switch word {
	case "refuse":
		vmstep.WriteFrame(os.Stdout, node, vmstep.KindFailed, vmstep.Failure{Error: rest})
		return 0
	case "srun":
		fmt.Fprintln(os.Stderr, "srun: error: "+rest+"\nsrun: error: and more")
		return 1
	case "requeued": // after squeue has listed the job
		jobs, _ := os.ReadFile(playPath("jobs"))
		requeued := strings.Replace(string(jobs), option("jobid")+"|0|1|RUNNING", rest, 1)
		os.WriteFile(playPath("jobs"), []byte(requeued), 0o600)
		fmt.Fprintln(os.Stderr, "srun: error: Unable to confirm allocation for job: Job is pending execution")
		return 1
	}
	var vms nodeagent.NodeVMs
	if err := json.Unmarshal(text, &vms); err != nil {
		panic(err)
	}
	switch words[0] {
	case "ps":
		vmstep.WriteFrame(os.Stdout, node, vmstep.KindVMs, vms)
	case "console":
		vmstep.WriteFrame(os.Stdout, node, vmstep.KindData, []byte("login: (of "+words[1]+" on "+node+")"))
	case "forward":
		in, _ := io.ReadAll(os.Stdin)
		vmstep.WriteFrame(os.Stdout, node, vmstep.KindData, []byte(strings.ToUpper(string(in))))
	case "map":
		in := broadcast()
		var frames vmstep.Frames
		frames.Message = func(m vmstep.Message) { os.WriteFile(playPath("map."+node), m.Body, 0o600) }
		frames.Write(in)
	case "key":
		var k struct{ Authorized, Host string }
		err := json.NewDecoder(os.Stdin).Decode(&k)
		if _, bad := sshkey.Public(k.Host); err != nil || bad != nil {
			vmstep.WriteFrame(os.Stdout, node, vmstep.KindFailed, vmstep.Failure{Error: fmt.Sprint("keys: ", k, err, bad)})
		}
		os.WriteFile(playPath("authorized"), []byte(k.Authorized), 0o600)
	}
	return 0
}

// broadcast is what srun gives to each of its tasks.
var broadcast = sync.OnceValue(func() []byte {
	in, _ := io.ReadAll(os.Stdin)
	return in
})

// playExec does what a command in a VM might, and speaks as srun does of its end.
func playExec(words []string) int {
	fmt.Println(strings.Join(words, " "))
	io.Copy(os.Stdout, os.Stdin)
	fmt.Fprintln(os.Stderr, "the program's own words")
	if words[len(words)-1] != "fail" {
		return 0
	}
	fmt.Fprintln(os.Stderr, "srun: error: n1: task 0: Exited with exit code 3")
	return 3
}

// playSbatch refuses every job.
func playSbatch() {
	fmt.Fprintln(os.Stderr, "sbatch: error: the partition is closed\nsbatch: error: Batch job submission failed: no")
	os.Exit(1)
}

func playSSH() int {
	for _, arg := range os.Args[1:] {
		if file, found := strings.CutPrefix(arg, "IdentityFile="); found {
			text, _ := os.ReadFile(file)
			public, err := sshkey.Public(string(text))
			let, _ := os.ReadFile(playPath("authorized"))
			fmt.Println("the key is let in:", strings.HasPrefix(string(let), public), err)
			os.WriteFile(playPath("keyfile"), []byte(file), 0o600)
			arg = "IdentityFile=KEY"
		}
		fmt.Println(arg)
	}
	return 4
}
