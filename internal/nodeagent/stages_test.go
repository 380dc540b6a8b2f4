package nodeagent

import (
	"os"
	"strings"
	"testing"
)

func TestStagesAreInTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, record, _ := strings.Cut(string(text), "## The record of a launch\n")
	record, _, _ = strings.Cut(record, "\n## ")
	for _, stage := range Stages {
		if !strings.Contains(record, "`"+stage+"`") {
			t.Errorf("docs/architecture.md, The record of a launch, does not name the stage %s", stage)
		}
	}
}
