package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// The list fits the source: who changes a line that is a defence hears of it at once.
func TestTheListFitsTheSource(t *testing.T) {
	names := map[string]bool{}
	for _, m := range all {
		t.Run(m.Name, func(t *testing.T) {
			if names[m.Name] || !regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`).MatchString(m.Name) {
				t.Error("the name is another mutant's, too, or not of small letters, digits and dashes")
			}
			names[m.Name] = true
			if !strings.HasSuffix(m.Defence, ".") {
				t.Errorf("the defence is no sentence: %q", m.Defence)
			}
			if !slices.Contains([]Kind{Unit, Slow, Cluster}, m.kind()) || (m.kind() == Cluster) != (m.Package == "test") {
				t.Errorf("a test of %s is not of the kind %s", m.Package, m.kind())
			}
			text, err := os.ReadFile(filepath.Join(root, m.File))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.apply(text); err != nil {
				t.Error(err)
			}
			if !hasTest(t, m) {
				t.Errorf("%s has no test %s", m.Package, m.Test)
			}
		})
	}
}

// What docs/security.md says of defences and their tests is what the list has.
func TestTheDocumentFitsTheList(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	said := regexp.MustCompile("`([a-z0-9-]+)`: ([a-z/-]+) `(Test[^`]*)`").FindAllStringSubmatch(string(text), -1)
	if len(said) < 100 {
		t.Errorf("the document names %d mutants", len(said))
	}
	for _, s := range said {
		if !slices.ContainsFunc(all, func(m Mutant) bool { return m.Name == s[1] && m.Package == s[2] && m.Test == s[3] }) {
			t.Errorf("the list has no mutant %s that dies with %s of %s", s[1], s[3], s[2])
		}
	}
}

func hasTest(t *testing.T, m Mutant) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, m.Package, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	top, _, _ := strings.Cut(m.Test, "/")
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "\nfunc "+top+"(t *testing.T)")
	})
}

// Only a test that fails by itself kills a mutant.
func TestVerdicts(t *testing.T) {
	const name = "TestX/a_row"
	tests := map[string]struct{ said, want string }{
		"it fails":            {"=== RUN   TestX\n--- FAIL: TestX (0.00s)\n    --- FAIL: TestX/a_row (0.00s)\n", "FAIL"},
		"it passes":           {"--- FAIL: TestX (0.00s)\n    --- PASS: TestX/a_row (0.00s)\n", "PASS"},
		"another row":         {"    --- FAIL: TestX/a_row_more (0.00s)\n", "no result"},
		"it is skipped":       {"    --- SKIP: TestX/a_row (0.00s)\n", "SKIP"},
		"there is no such":    {"testing: warning: no tests to run\nPASS\n", "no result"},
		"it only quotes this": {"    x_test.go:1: --- FAIL: TestX/a_row (0.00s)\n", "no result"},
	}
	for what, tt := range tests {
		t.Run(what, func(t *testing.T) {
			if got := outcomeOf(name, tt.said); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestPattern(t *testing.T) {
	for want, names := range map[string][]string{
		"^TestA$":            {"TestA"},
		`^TestA$/^a\.b$`:     {"TestA/a.b"},
		"^(TestA|TestB)$":    {"TestA/a", "TestB", "TestA/b"},
		"^(TestA|TestLong)$": {"TestLong", "TestA"},
	} {
		if got := pattern(names); got != want {
			t.Errorf("pattern(%q) = %s, want %s", names, got, want)
		}
	}
}

// A sample is the same whenever a commit is tested, and another for the next.
func TestSampled(t *testing.T) {
	var many []Mutant
	for c := 'a'; c <= 'z'; c++ {
		many = append(many, Mutant{Name: string(c)})
	}
	names := func(commit string) (s string) {
		for _, m := range sampled(many, 5, commit) {
			s += m.Name
		}
		return s
	}
	if a, again := names("1"), names("1"); a != again || len(a) != 5 {
		t.Errorf("%q, and then %q", a, again)
	}
	if names("1") == names("2") {
		t.Error("two commits have the same sample")
	}
}
