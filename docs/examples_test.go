package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Every script of the examples is one that a shell understands, and that a reader of the documents finds.
func TestReadersFindTheExamples(t *testing.T) {
	documents, _ := filepath.Glob("*.md")
	var text strings.Builder
	for _, document := range documents {
		page, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(page)
	}
	scripts, err := filepath.Glob("../examples/*.sbatch")
	if err != nil || len(scripts) == 0 {
		t.Fatal("no examples", err)
	}
	for _, script := range scripts {
		if !strings.Contains(text.String(), "("+script+")") {
			t.Errorf("no document leads to %s", script)
		}
		if out, err := exec.CommandContext(t.Context(), "bash", "-n", script).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", script, err, out)
		}
	}
}
