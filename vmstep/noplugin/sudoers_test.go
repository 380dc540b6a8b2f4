package noplugin

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// sudo reads the lines that an administrator is told to write, also in the documentation.
func TestSudoersLines(t *testing.T) {
	visudo, err := exec.LookPath("visudo")
	if err != nil {
		t.Skip("no visudo: install the package sudo")
	}
	lines := securePathLine() + "\n" + sudoersLine() + "\n"
	accepted := func(text string) bool {
		path := filepath.Join(t.TempDir(), "sudoers")
		if err := os.WriteFile(path, []byte(text), 0o440); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(visudo, "-c", "-f", path).CombinedOutput()
		t.Logf("%s", out)
		return err == nil
	}
	if !accepted(lines) {
		t.Errorf("visudo refuses:\n%s", lines)
	}
	if accepted(strings.Replace(lines, " secure_path", " launch --task secure_path", 1)) {
		t.Error("visudo accepts a setting of a command with arguments as well")
	}
	admin, err := os.ReadFile("../../docs/admin.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(lines) {
		if !strings.Contains(string(admin), "    "+line) {
			t.Errorf("docs/admin.md does not have the line %s", line)
		}
	}
}
