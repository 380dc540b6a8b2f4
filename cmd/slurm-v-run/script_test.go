package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/mpirun"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/sshkey"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/vmstep"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"slurm-v-run": main,
		"srun":        fakeSrun,
		"squeue":      func() {}, // no job: a keeper without VMs ends
	})
}

var jobs atomic.Int32

// The scripts run with an srun that plays the nodes. Each is a job of its own,
// since the keeper is a process which outlives slurm-v-run.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			job := os.Getpid()<<4 + int(jobs.Add(1))
			e.Setenv("GORACE", "atexit_sleep_ms=0") // else each program waits a second at its end
			e.Setenv("SLURM_JOB_ID", strconv.Itoa(job))
			e.Setenv("SLURM_JOB_NUM_NODES", "1")
			e.Setenv("SLURM_JOB_NODELIST", "n1")
			e.Setenv("SLURM_SPANK_SLURMV_SPEC", "{}")
			e.Setenv("TWO_VMS", jobspec.Spec{VMsPerNode: 2, VCPUs: 2}.Encode())
			e.Setenv("TWO_DEVICES", jobspec.Spec{VMsPerNode: 1, IVShmem: jobspec.IVShmem{Devices: 2, SizeMiB: 16}}.Encode())
			// The VM step ends with this file, and the keeper after it.
			alive := e.WorkDir + "/alive"
			e.Setenv("ALIVE", alive)
			e.Defer(func() {
				os.Remove(alive)
				awaitEnd(addresses(job)[0])
			})
			return os.WriteFile(alive, nil, 0o600)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"end-vms": endVMs},
	})
}

// endVMs ends the VM step and waits until the keeper has noticed.
func endVMs(ts *testscript.TestScript, _ bool, _ []string) {
	job, err := strconv.Atoi(ts.Getenv("SLURM_JOB_ID"))
	ts.Check(err)
	keeper, err := vmstep.Connect(context.Background(), addresses(job), false, func() error { return errors.New("there is none") })
	ts.Check(err)
	defer keeper.Close()
	ts.Check(os.Remove(ts.Getenv("ALIVE")))
	if reason := keeper.UntilEnd(); reason == "" {
		ts.Fatalf("the keeper went without a word")
	}
}

// addresses are those of a job whose request has no secret.
func addresses(job int) []string {
	return vmstep.Addresses(os.Getuid(), vmstep.Job{ID: uint32(job)})
}

// awaitEnd waits until no keeper listens.
func awaitEnd(address string) {
	for {
		conn, err := net.Dial("unix", address)
		if err != nil {
			return
		}
		conn.Close()
		time.Sleep(20 * time.Millisecond)
	}
}

// fakeSrun is the VM step if it is told to run hold, does what prepares the VMs
// for mpirun, and else prints how it was called.
func fakeSrun() {
	words := strings.Join(os.Args[1:], " ")
	switch {
	case strings.HasSuffix(words, "--help"):
		fmt.Println("      --launch-in=place  another plugin's option")
	case strings.HasSuffix(words, " hold"):
		playVMStep()
		os.Exit(1)
	case strings.Contains(words, "/slurmv-agent claim"):
		logStep(words)
		playClaim()
	case strings.HasSuffix(words, " query key"):
		logStep(words)
		playKey()
	case strings.Contains(words, mpirun.Done):
		logStep(words)
		if _, err := os.Stat(os.Getenv("ALIVE") + ".prepared"); err == nil {
			fmt.Println(mpirun.Done)
		}
	case strings.HasSuffix(words, "/slurmv-relay -- /bin/sh"):
		logStep(words)
		playShell()
	default:
		fmt.Println("srun", strings.Join(os.Args[1:], " "))
		if os.Getenv("LINGER") != "" {
			logStep("the program runs")
			time.Sleep(time.Hour)
		}
	}
}

// playClaim is the step that holds a device, as CLAIM says: it comes late, it does not
// come, or the step fails, always or the first time.
func playClaim() {
	say := func(m nodeagent.ClaimMessage) { vmstep.WriteFrame(os.Stdout, "n1", vmstep.KindClaim, m) }
	switch os.Getenv("CLAIM") {
	case "busy":
		say(nodeagent.ClaimMessage{Busy: true})
		return
	case "refused":
		vmstep.WriteFrame(os.Stdout, "n1", vmstep.KindFailed, vmstep.Failure{Error: "the VMs of job 7 are ending"})
		return
	case "broken":
		fmt.Fprintln(os.Stderr, "srun: error: Unable to create step for job 7: Job/step already completing or completed")
		os.Exit(1)
	case "fails once":
		if err := os.Mkdir(os.Getenv("ALIVE")+".failed", 0o700); err == nil {
			fmt.Fprintln(os.Stderr, "srun: error: Task launch for StepId=7.1 failed on node n1: Socket timed out on send/recv operation")
			os.Exit(1)
		}
	case "cancelled":
		say(nodeagent.ClaimMessage{Waiting: true})
		fmt.Fprintln(os.Stderr, "slurmstepd: error: *** STEP 7.1 ON n1 CANCELLED AT 2026-11-20T18:02:09 ***")
		os.Exit(1)
	case "late":
		say(nodeagent.ClaimMessage{Waiting: true})
	}
	say(nodeagent.ClaimMessage{Claim: &nodeagent.Claim{Device: 1, Number: 7}})
	// More than anybody will read: that must not stop a holder.
	for range 100 {
		if _, err := unix.Write(2, []byte(strings.Repeat("srun: error: noise\n", 100))); errors.Is(err, unix.EPIPE) {
			logStep("nobody listens") // srun would be killed
		}
	}
	logStep("all is said")
	io.Copy(io.Discard, os.Stdin)
	logStep("the claim ends")
}

// logStep keeps how a step was called.
func logStep(words string) {
	log, err := os.OpenFile(os.Getenv("ALIVE")+".steps", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer log.Close()
	fmt.Fprintln(log, words)
}

// playKey is the agent's answer to a key.
func playKey() {
	if fail := os.Getenv("NOSSHD"); fail != "" {
		vmstep.WriteFrame(os.Stdout, "n1", vmstep.KindFailed, vmstep.Failure{Error: fail})
		return
	}
	var told sshkey.Announcement
	if err := json.NewDecoder(os.Stdin).Decode(&told); err != nil {
		panic(err)
	}
	public, err := sshkey.Public(told.Host)
	if err != nil {
		panic(err)
	}
	vms := []nodeagent.VM{{Name: "vm0", Address: "172.30.0.1"}, {Number: 1, Name: "vm1", Address: "172.30.0.2"}}
	vmstep.WriteFrame(os.Stdout, "n1", vmstep.KindVMs, nodeagent.NodeVMs{Node: "n1", VMs: vms, HostKey: public})
}

// playShell is the shell of two VMs: what it would write lies in a file.
func playShell() {
	if fail := os.Getenv("NOSSH"); fail != "" {
		fmt.Fprintln(os.Stderr, fail+"\n"+fail)
		os.Exit(1)
	}
	script, _ := io.ReadAll(os.Stdin)
	os.WriteFile(os.Getenv("ALIVE")+".script", script, 0o600)
	os.WriteFile(os.Getenv("ALIVE")+".prepared", nil, 0o600)
	fmt.Println(mpirun.Done)
	fmt.Println(mpirun.Done)
}

// playVMStep returns when the step has failed or was cancelled.
func playVMStep() {
	if fail := os.Getenv("FAIL"); fail != "" {
		fmt.Fprintln(os.Stderr, "slurmstepd-n1: error: slurmv: node n1: "+fail)
		return
	}
	vms := nodeagent.NodeVMs{Node: "n1", VMs: []nodeagent.VM{{Name: "vm0"}}}
	// All on one stream: between two of them there is no order.
	vmstep.WriteFrame(os.Stdout, "n1", vmstep.KindProgress, vmstep.Progress{Stage: "boot", Millis: 1200})
	vmstep.WriteFrame(os.Stdout, "n1", vmstep.KindVMs, vms)
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	vmstep.WriteFrame(os.Stdout, "n1", vmstep.KindReady, nil)
	for {
		if _, err := os.Stat(os.Getenv("ALIVE")); err != nil {
			fmt.Fprintln(os.Stderr, "slurmstepd-n1: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-20T14:11:07 ***")
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
