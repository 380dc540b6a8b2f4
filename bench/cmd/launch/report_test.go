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
