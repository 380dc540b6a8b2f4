package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// A package, and the tests that it has behind it: vmlaunch `TestX`, `TestY`.
	testsOf = regexp.MustCompile("([a-z0-9/-]*)[^a-z`]*((?:`Test\\w+[^`]*`(?:,\\s+)?)+)")
	oneTest = regexp.MustCompile("`(Test\\w+)[`/]")
)

// Each test that security.md names is in its package, or, where it names none, a scenario.
func TestSecurityNamesTestsThatExist(t *testing.T) {
	text, err := os.ReadFile("security.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, found := range testsOf.FindAllStringSubmatch(string(text), -1) {
		sources := testSources(t, found[1])
		for _, name := range oneTest.FindAllStringSubmatch(found[2], -1) {
			if seen++; !strings.Contains(sources, "func "+name[1]+"(") {
				t.Errorf("%s has no %s", found[1], name[1])
			}
		}
	}
	if seen < 400 {
		t.Errorf("only %d tests were found", seen)
	}
}

// testSources returns the test files of a package, or else of the scenarios.
func testSources(t *testing.T, name string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", name, "*_test.go"))
	if len(files) == 0 && err == nil {
		files, err = filepath.Glob("../test/*_test.go")
	}
	var all strings.Builder
	for _, file := range files {
		text, readErr := os.ReadFile(file)
		if readErr != nil {
			err = readErr
		}
		all.Write(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
