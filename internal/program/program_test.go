package program

import (
	"os"
	"path/filepath"
	"testing"
)

func put(t *testing.T, path string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	first, second := put(t, dir+"/1/tool", 0o755), put(t, dir+"/2/tool", 0o755)
	put(t, dir+"/0/tool", 0o644)
	put(t, dir+"/3/tool/file", 0o755)
	t.Chdir(dir)
	tests := map[string]struct{ list, want string }{
		"the first":             {dir + "/1:" + dir + "/2", first},
		"past what has none":    {dir + "/none:" + dir + "/2", second},
		"past an empty word":    {":" + dir + "/2", second},
		"past no program":       {dir + "/0:" + dir + "/2", second},
		"past a directory":      {dir + "/3:" + dir + "/2", second},
		"past a relative one":   {"1:" + dir + "/2", second},
		"nowhere":               {dir + "/none", ""},
		"only by relative ones": {"1:.", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := find(tt.list, "tool")
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("find = %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

// Find ignores the caller's PATH. As a control, the caller's own lookup finds the program
// that the caller has put there.
func TestFindDoesNotLookAtPATH(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/sh", 0o755)
	put(t, dir+"/slurmv-test-tool", 0o755)
	t.Setenv("PATH", dir)
	if got, err := Find(dir, "slurmv-test-tool"); err != nil || got != dir+"/slurmv-test-tool" {
		t.Errorf("in the site's directory: %q, %v", got, err)
	}
	if got, err := Find("", "sh"); err != nil || filepath.Dir(got) == dir {
		t.Errorf("sh = %q, %v; want the system's", got, err)
	}
	if got, err := Find("", "slurmv-test-tool"); err == nil {
		t.Errorf("%s was found by PATH", got)
	}
}
