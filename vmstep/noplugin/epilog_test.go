package noplugin

import (
	"os"
	"strings"
	"testing"
)

// An administrator without the plugin, and one with RunInJob, read the same script. It confirms
// the release of tags for jobs that have them, and for no others.
func TestTheDocumentedEpilogScript(t *testing.T) {
	admin, err := os.ReadFile("../../docs/admin.md")
	if err != nil {
		t.Fatal(err)
	}
	script := "    " + strings.Join(epilogScript(), "\n    ") + "\n"
	if !strings.Contains(string(admin), script) {
		t.Errorf("docs/admin.md does not have the script\n%s", script)
	}
	if want := " --last ${SPANK_SLURMV_FABRIC:+--fabric}\n"; !strings.HasSuffix(script, want) {
		t.Errorf("the script does not end with %s:\n%s", want, script)
	}
}
