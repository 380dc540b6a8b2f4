package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// log is one run on two nodes, as meter and job.sh write it, with times in tenths of a
// second.
const log = `10 plain
15 plain-end
20 start
30 err 40 n1 vms 1 1/2
31 err 41 n1 vms 1 2/2
40 err 50 n2 vms 1 1/1
42 in 100 - map 1 1/1
50 err 20 n1 ready 2 1/1
60 err 20 n2 ready 2 1/1
61 err 12
70 end
75 free
`

func writeLog(t *testing.T, dir, name, text string) {
	t.Helper()
	var nanos strings.Builder
	for line := range strings.Lines(text) {
		tenths, rest, _ := strings.Cut(line, " ")
		fmt.Fprintf(&nanos, "17000%s00000000 %s", tenths, rest)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(nanos.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func near(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 }

func TestReadJob(t *testing.T) {
	dir := t.TempDir()
	writeLog(t, dir, "2-1-1.log", log)
	got, err := readJob(filepath.Join(dir, "2-1-1.log"))
	if err != nil {
		t.Fatal(err)
	}
	want := job{
		nodes: 2, vms: 1, plain: 0.5, firstAgent: 1, lastAgent: 2, lastVMs: 2, mapSent: 2.2, done: 4, free: 0.5,
		messages: 2, lines: 2.5, bytes: 85.5, mapLines: 1, mapBytes: 100,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(job{}), cmp.Comparer(near)); diff != "" {
		t.Errorf("job differs (-want +got):\n%s", diff)
	}
}

func TestARunWithoutEndIsAnError(t *testing.T) {
	dir := t.TempDir()
	writeLog(t, dir, "2-1-1.log", strings.Split(log, "70 end")[0])
	if _, err := readJob(filepath.Join(dir, "2-1-1.log")); err == nil {
		t.Error("it counts as a run")
	}
}

func TestReadPartsTakesMedians(t *testing.T) {
	file := filepath.Join(t.TempDir(), "node.txt")
	text := "goos: linux\n"
	for _, ms := range []string{"9.0", "1.0", "4.0"} {
		text += "BenchmarkNode/launch/vms=16-2 \t 1\t 64 ns/op\t " + ms + " ms/VM\n"
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := readParts(file)
	if diff := cmp.Diff(parts{"launch": {16: 4}}, got); diff != "" || err != nil {
		t.Errorf("parts differ (-want +got), error %v:\n%s", err, diff)
	}
}

func TestReport(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	for _, name := range []string{"1-1-1.log", "2-1-1.log", "2-4-1.log"} {
		writeLog(t, dir, name, log)
	}
	var text strings.Builder
	for _, name := range partNames {
		fmt.Fprintf(&text, "BenchmarkNode/%s/vms=16 1 64 ns/op 2.0 ms/VM\nBenchmarkNode/%[1]s/vms=256 1 64 ns/op 4.0 ms/VM\n", name[0])
	}
	if err := os.WriteFile(filepath.Join(dir, "node.txt"), []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"report", "--out", out, dir}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(out, "scale.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| **reclaim** | 2.0 | 4.0 | 2.0 |\n",
		"| 2 | 8 | 0.50 | 1.00 | 2.00 | 2.00 | 2.20 | **4.00** | 2.00 | 0.50 |\n",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%q is not in the report:\n%s", want, got)
		}
	}
}

func TestMeterKnowsMessages(t *testing.T) {
	tests := map[string]struct{ line, want string }{
		"a message":      {"@slurmv1 n1 vms 3 1/2 eyJ9\n", "n1 vms 3 1/2"},
		"another line":   {"slurm-v: 2 VMs ready in 9.1 s\n", ""},
		"a foreign line": {"@slurmv2 n1 vms 3 1/2 eyJ9\n", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := frame(tt.line); got != tt.want {
				t.Errorf("frame is %q, want %q", got, tt.want)
			}
		})
	}
}
