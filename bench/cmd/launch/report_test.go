package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const docs = "../../../docs"

// The report in docs comes from the results beside it. After changing its words, run
// bench/launch --report.
func TestReportIsTheOneInDocs(t *testing.T) {
	results, err := os.ReadFile(filepath.Join(docs, "benchmarks.json"))
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	if err := os.WriteFile(filepath.Join(out, "benchmarks.json"), results, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := rewrite(out); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"benchmarks.md", "benchmarks.json", "benchmarks-image.svg", "benchmarks-nodes.svg"} {
		if strings.HasSuffix(name, ".svg") && runtime.GOARCH != "amd64" {
			continue // other processors round coordinates differently
		}
		want, err := os.ReadFile(filepath.Join(docs, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("docs/%s is not what the results give (-docs +results):\n%s", name, diff)
		}
	}
}

func TestNoReportWithoutResults(t *testing.T) {
	out := t.TempDir()
	if err := rewrite(out); err == nil {
		t.Error("a report was made of no results")
	}
	if files, _ := os.ReadDir(out); len(files) > 0 {
		t.Errorf("%v was written", files)
	}
}

// A run writes its report after each point, so at first only one kind of start has been measured.
func TestAPictureOfTheFirstPoint(t *testing.T) {
	out := t.TempDir()
	r := results{Scale: []scalePoint{{VMs: 32, Nodes: 4, Start: "warm", Rounds: []launch{{Seconds: 10, CPU: 20}}}}}
	if err := r.draw(out); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(out, "benchmarks-nodes.svg")); err != nil || !strings.Contains(string(text), "<svg") {
		t.Errorf("the picture is %.100q, %v", text, err)
	}
}
