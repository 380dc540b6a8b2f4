package slurm

import (
	"slices"
	"strings"
	"testing"
)

func TestScript(t *testing.T) {
	tests := map[string]struct {
		argv string
		want string // "" if not found
	}{
		"none":                               {"sbatch -n 2", ""},
		"behind options":                     {"sbatch -n 2 --hold x.sh 1", "x.sh"},
		"behind the value of a VM option":    {"sbatch --vm-per-node 2 x.sh", "x.sh"},
		"behind one that is cut":             {"sbatch --vm-per 2 x.sh", "x.sh"},
		"behind another plugin's flag":       {"sbatch --container-mount-home x.sh", "x.sh"},
		"behind two dashes":                  {"sbatch -n2 -- x.sh", "x.sh"},
		"a dash":                             {"sbatch -", ""},
		"the value of an option is not it":   {"sbatch --job-name x.sh", ""},
		"an optional value is no other word": {"sbatch --exclusive x.sh", "x.sh"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path, given := ReadCommandLine(strings.Fields(tt.argv), "vm-per-node").Script()
			if path != tt.want || given != (tt.want != "") {
				t.Errorf("script %q, %v; want %q", path, given, tt.want)
			}
		})
	}
}

func TestSubmission(t *testing.T) {
	tests := map[string]struct {
		argv, script string
		dir          string
		components   bool
	}{
		"in its directory":                  {"sbatch x.sh", "", "/home/u", false},
		"in another one":                    {"sbatch -D /data x.sh", "", "/data", false},
		"in one below":                      {"sbatch --chdir=a/b x.sh", "", "/home/u/a/b", false},
		"in the script's":                   {"sbatch x.sh", "#SBATCH --chdir ..\n", "/home", false},
		"in the script's, behind a synonym": {"sbatch x.sh", "#SBATCH --tasks-per-node 8\n#SBATCH --chdir=/data\n", "/data", false},
		"in that of the program it runs":    {"salloc ./x -D /data", "", "/home/u", false},
		"components on the command line":    {"sbatch -n1 : -n2 x.sh", "", "/home/u", true},
		"components of salloc":              {"salloc -c 2 : -n2", "", "/home/u", true},
		"components in the script":          {"sbatch x.sh", "#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -D /x\n", "/home/u", true},
		"components in an old script":       {"sbatch x.sh", "#SBATCH packjob\n", "/home/u", true},
		"a colon of the program's":          {"salloc x : y", "", "/home/u", false},
		"an option at the end of the words": {"sbatch -D", "", "/home/u", false},
		"a colon behind two dashes":         {"sbatch -- :", "", "/home/u", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			sub := ReadCommandLine(strings.Fields(tt.argv)).Submission(tt.script, func(string) string { return "" })
			if got := sub.WorkDir("/home/u"); got != tt.dir {
				t.Errorf("WorkDir = %s, want %s", got, tt.dir)
			}
			if sub.Heterogeneous != tt.components {
				t.Errorf("Heterogeneous = %t, want %t", sub.Heterogeneous, tt.components)
			}
		})
	}
}

// Each row was tried with sbatch 22.05.
func TestSplitDirective(t *testing.T) {
	tests := map[string]struct {
		line string
		want []string
	}{
		"words":                        {" -a  b\t-c ", []string{"-a", "b", "-c"}},
		"nothing":                      {"  ", nil},
		"a comment":                    {" -a # -b", []string{"-a"}},
		"a comment within a word":      {" -a#b", []string{"-a"}},
		"quotes":                       {` "two words" 'and "more"'`, []string{"two words", `and "more"`}},
		"quotes within a word":         {` a"b c"d'e'`, []string{"ab cde"}},
		"an empty word, ending it":     {` -a "" -b`, []string{"-a"}},
		"an empty value":               {` -a="" -b`, []string{"-a=", "-b"}},
		"a backslash":                  {` a\#b "c\"d" \\`, []string{"a#b", `c"d`, `\`}},
		"a backslash in single quotes": {` 'a\'b'`, []string{"a'b"}},
		"a space after a backslash":    {` a\ b`, []string{"a", "b"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := splitDirective(tt.line); !slices.Equal(got, tt.want) {
				t.Errorf("splitDirective(%q) = %q, want %q", tt.line, got, tt.want)
			}
		})
	}
}
