package prove

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/slurm"
)

// A site plays Slurm's commands. A submitted job is over at once, and leaves the files of
// its outcome; jobs number 1, 2 … In the site's directory, the file log has all command
// lines, and the file refuse what sbatch says to a script that asks for more nodes than one.
const site = `
site=$(dirname "$0")
echo "$(basename "$0") $*" >>"$site/log"
case $(basename "$0") in
sbatch)
	if [ -e "$site/refuse" ] && ! grep -q -- "--nodes=1 " "${!#}"; then cat "$site/refuse" >&2; exit 1; fi
	dir=$(sed -n 's/.*--chdir=\([^ ]*\).*/\1/p' <<<"$*")
	name=$(basename "$dir")
	[ ! -d "$site/files/$name" ] || cp "$site/files/$name"/* "$dir"
	id=$(($(cat "$site/jobs" 2>/dev/null || echo 0) + 1))
	echo $id >"$site/jobs"
	echo "$name" >"$site/job.$id"
	echo "$id;cluster" ;;
squeue)
	id=$(sed -n 's/.*--jobs=\([0-9]*\).*/\1/p' <<<"$*")
	state=$(cat "$site/state.$(cat "$site/job.$id")" 2>/dev/null || echo COMPLETED)
	[ "$state" != UNKNOWN ] || { echo "Invalid job id specified" >&2; exit 1; }
	echo "$id|$id|N/A|1000|1000|0|2|1|1|$state|n[1-2]" ;;
scontrol)
	[ -e "$site/refuse" ] && echo n1 || printf 'n1\nn2\n' ;;
scancel)
	echo CANCELLED >"$site/state.$(cat "$site/job.$1")" ;;
esac
`

// prover is one at a site whose jobs leave the files of the evidence.
func prover(t *testing.T, e Evidence) (p *Prover, dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"sbatch", "squeue", "scontrol", "scancel"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/bash"+site), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for job, o := range e.Outcomes {
		for name, text := range o.Files {
			write(t, filepath.Join(dir, "files", job, name), text)
		}
		if o.State != "CANCELLED" { // that is scancel's to say
			write(t, filepath.Join(dir, "state."+job), o.State)
		}
	}
	write(t, filepath.Join(dir, "state."+jobCancel), "RUNNING")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	r := e.Request
	r.On = nil
	return &Prover{Request: r, Config: config.Default(), Client: slurm.User(os.Environ()), Dir: filepath.Join(t.TempDir(), "jobs"),
		UID: 1000, Wait: time.Minute, Interval: time.Millisecond, Words: &bytes.Buffer{}}, dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// commands returns those that were run at the site, without the questions.
func commands(t *testing.T, dir string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "sbatch":
			all = append(all, "sbatch "+filepath.Base(filepath.Dir(rest)))
		case "scancel":
			all = append(all, word+" "+rest)
		}
	}
	return all
}

func TestProve(t *testing.T) {
	p, dir := prover(t, good())
	e, err := p.Prove(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if proof := e.Judge(); !proof.Passed || len(results(proof)) > 0 {
		t.Errorf("steps have not passed: %v", results(proof))
	}
	want := []string{"sbatch nodes", "sbatch vms", "sbatch cancel", "scancel 3", "sbatch limit", "sbatch left"}
	if got := commands(t, dir); !slices.Equal(got, want) {
		t.Errorf("commands are %q, want %q", got, want)
	}
	for job, lines := range map[string][]string{
		jobVMs:    {"#SBATCH --nodelist=n1,n2\n", "#SBATCH --nodes=2 --time=120\n", "#SBATCH --mincpus=2\n", "#SBATCH --sriov=1\n", "#SBATCH --ivshmem=1:1M\n", "#SBATCH --vm-start=cold\n"},
		jobCancel: {"#SBATCH --nodelist=n1\n", "#SBATCH --vm-per-node=1\n"},
		jobLimit:  {"--time=1\n"},
		jobLeft:   {"leftovers --wait=2m 2 3 4\n", "#SBATCH --nodelist=n1,n2\n"},
	} {
		script, _ := os.ReadFile(filepath.Join(p.Dir, job, "script"))
		for _, line := range lines {
			if !strings.Contains(string(script), line) {
				t.Errorf("the script of %s has no %q:\n%s", job, line, script)
			}
		}
	}
}

func TestProveWhereThingsFail(t *testing.T) {
	tests := map[string]struct {
		change   func(t *testing.T, p *Prover, dir string)
		step     string
		want     string
		commands []string
	}{
		"no VMs: nothing more is tried, but what is left": {func(t *testing.T, _ *Prover, dir string) {
			write(t, filepath.Join(dir, "files/vms/start.status"), "1 1 2\n")
			write(t, filepath.Join(dir, "files/vms/start.err"), "slurm-v-run: the VMs could not be started: image /x does not exist\n")
		}, "start", "failed: slurm-v-run: the VMs could not be started: image /x does not exist", []string{"sbatch nodes", "sbatch vms", "sbatch left"}},
		"sbatch refuses": {func(t *testing.T, _ *Prover, dir string) {
			write(t, filepath.Join(dir, "refuse"), "sbatch: error: too many nodes\nsbatch: error: spank: required plugin\nsbatch: error: Plugin stack post-option processing failed\nsbatch: error: Batch job submission failed: no\n")
		}, "preflight", "failed: sbatch refuses the job: too many nodes", []string{"sbatch nodes"}},
		"one node will do": {func(t *testing.T, p *Prover, dir string) {
			write(t, filepath.Join(dir, "refuse"), "sbatch: error: Batch job submission failed: too many nodes\n")
			p.OneNode = true
		}, "preflight", "", []string{"sbatch nodes", "sbatch nodes", "sbatch vms", "sbatch left"}},
		"a job never ends": {func(t *testing.T, p *Prover, dir string) {
			write(t, filepath.Join(dir, "state."+jobLimit), "PENDING")
			p.Wait = 300 * time.Millisecond
		}, "time limit", "failed: job 4 is PENDING after 300ms: it was cancelled (--wait waits longer)",
			[]string{"sbatch nodes", "sbatch vms", "sbatch cancel", "scancel 3", "sbatch limit", "scancel 4", "sbatch left"}},
		"Slurm forgets a job": {func(t *testing.T, _ *Prover, dir string) {
			write(t, filepath.Join(dir, "state."+jobLimit), "UNKNOWN")
		}, "time limit", "failed: job 4 is ", []string{"sbatch nodes", "sbatch vms", "sbatch cancel", "scancel 3", "sbatch limit", "sbatch left"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p, dir := prover(t, good())
			tt.change(t, p, dir)
			e, err := p.Prove(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := results(e.Judge())[tt.step]; !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
				t.Errorf("%s: %q, want %q", tt.step, got, tt.want)
			}
			if got := commands(t, dir); !slices.Equal(got, tt.commands) {
				t.Errorf("commands are %q, want %q", got, tt.commands)
			}
		})
	}
}

// The user's Ctrl-C leaves no job behind.
func TestProveIsInterrupted(t *testing.T) {
	p, dir := prover(t, good())
	write(t, filepath.Join(dir, "state."+jobVMs), "RUNNING")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // while the prover waits for the second job
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if log, _ := os.ReadFile(filepath.Join(dir, "log")); strings.Contains(string(log), "--jobs=2") {
				cancel()
			}
		}
	}()
	if _, err := p.Prove(ctx); err == nil {
		t.Error("no error")
	}
	if got, want := commands(t, dir), []string{"sbatch nodes", "sbatch vms", "scancel 2"}; !slices.Equal(got, want) {
		t.Errorf("commands are %q, want %q", got, want)
	}
}

func TestScriptsAreShell(t *testing.T) {
	r := asked()
	r.Program, r.Image, r.Options = "/apps/it's here -n 3", "a'b.qcow2", []string{"--account=x"}
	job, err := r.VMJob(config.Default())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`#SBATCH --vm-image='a'\''b.qcow2'`, "#SBATCH --account=x\n", `cp '/apps/it'\''s' program || exit`, "./program here -n 3\n",
		`run "$side.$round" "$side" --nodes=2 --ntasks=4 --ntasks-per-node=2 ./workload measure --loops=`} {
		if !strings.Contains(job.Script, want) {
			t.Errorf("no %q in:\n%s", want, job.Script)
		}
	}
	if got, want := strings.Count(job.Script, "#SBATCH --mem="), 1; got != want {
		t.Errorf("%d lines for memory:\n%s", got, job.Script)
	}
}

func TestValidate(t *testing.T) {
	for flag, change := range map[string]func(*Request){
		"--nodes": func(r *Request) { r.Nodes = 0 }, "--vm-per-node": func(r *Request) { r.VMs = 65 }, "--vcpu-per-vm": func(r *Request) { r.VCPUs = -1 },
		"--rounds": func(r *Request) { r.Rounds = 0 }, "--time": func(r *Request) { r.Minutes = 0 }, "--ivshmem": func(r *Request) { r.IVShmem = 17 }, "": func(*Request) {},
		"--memory-per-vm": func(r *Request) { r.VCPUs = 8 },
	} {
		r := asked()
		change(&r)
		if err := r.Validate(); (err == nil) != (flag == "") || err != nil && !strings.HasPrefix(err.Error(), flag+": ") {
			t.Errorf("error about %q: %v", flag, fmt.Sprint(err))
		}
	}
}

func TestRefusal(t *testing.T) {
	for text, want := range map[string]string{
		"sbatch: error: no image\nsbatch: error: spank: required plugin x\nsbatch: error: Plugin stack post-option processing failed\n": "no image",
		"sbatch: error: too many\nsbatch: error: Batch job submission failed: no\n":                                                     "too many",
		"sbatch: error: Batch job submission failed: Invalid account\n":                                                                 "Batch job submission failed: Invalid account",
		"sbatch: error: two\n\nsbatch: error: lines\n":                                                                                  "two lines",
	} {
		if got := refusal(text); got != "sbatch refuses the job: "+want {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}
