// Package house keeps the source as CONTRIBUTING.md says it is: small types, small functions
// and thin programs.
package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The bounds. Who needs more makes a new room: a type, a package.
const (
	mostMethods  = 30   // of a type
	mostLines    = 60   // of a function
	mostCommands = 3500 // lines of all of cmd
)

const root = "../.."

func TestTypesFunctionsAndProgramsAreSmall(t *testing.T) {
	methods, lines := map[string]int{}, 0
	for path, text := range sources(t) {
		if strings.HasPrefix(path, "cmd/") {
			lines += bytes.Count(text, []byte("\n"))
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if of := receiver(f); of != "" {
				methods[filepath.Dir(path)+"."+of]++
			}
			if n := files.Position(f.End()).Line - files.Position(f.Pos()).Line + 1; n > mostLines {
				t.Errorf("%s: %s has %d lines, at most %d are good", path, f.Name.Name, n, mostLines)
			}
		}
	}
	for name, n := range methods {
		if n > mostMethods {
			t.Errorf("%s has %d methods, at most %d are good", name, n, mostMethods)
		}
	}
	if lines == 0 || len(methods) == 0 {
		t.Error("the source was not found")
	}
	if lines > mostCommands {
		t.Errorf("cmd has %d lines, at most %d are good", lines, mostCommands)
	}
}

// go test runs nothing, and says that all is well, if no test has the name. A scenario of test/rest or test/long that was
// renamed would run in `make test` again, however long it takes.
func TestScriptsNameTestsThatExist(t *testing.T) {
	tests := textOf(t, "test/*_test.go") + textOf(t, "test/sriovnode/*_test.go") + textOf(t, "fabric/controller/*_test.go")
	for _, script := range []string{"Makefile", "test/rest", "test/long", "test/matrix", "test/cgroup2", "scripts/test"} {
		named := testNames(textOf(t, script))
		if len(named) == 0 {
			t.Errorf("%s names no test", script)
		}
		for _, name := range named {
			if !strings.Contains(tests, "\nfunc "+name) {
				t.Errorf("%s names %s, which is no test", script, name)
			}
		}
	}
}

// testNames returns the tests that regular expressions of a script name, with the bracket for the parameters. It is left
// out where the expression ends with .*
func testNames(script string) (names []string) {
	script = regexp.MustCompile(`Test\(([\w|]+)\)`).ReplaceAllStringFunc(script, func(group string) string {
		return "Test" + strings.ReplaceAll(strings.Trim(group[len("Test"):], "()"), "|", "|Test")
	})
	for _, m := range regexp.MustCompile(`\b(Test[A-Z]\w*)(\.\*)?`).FindAllStringSubmatch(script, -1) {
		name := m[1]
		if m[2] == "" {
			name += "("
		}
		names = append(names, name)
	}
	return names
}

// textOf returns the files that the pattern matches, one behind the other.
func textOf(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no file is %s (%v)", pattern, err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// The suite ends neither a cluster of the user nor that of a suite that runs, and leaves nothing out because of one.
func TestTheSuiteAndClustersThatAreUp(t *testing.T) {
	self := strconv.Itoa(os.Getpid())
	for name, tt := range map[string]struct {
		part  string
		files map[string]string // of the cluster that is up
		want  string            // the word that the script ends with
	}{
		"none":                            {part: "rest", want: "done"},
		"the user's":                      {part: "rest", files: map[string]string{"complete": ""}, want: "end it first"},
		"the user's, for the main part":   {files: map[string]string{"complete": ""}, want: "done"},
		"of a suite that runs":            {files: map[string]string{"complete": "", "suite": self}, want: "wait for its end"},
		"of a suite that was killed":      {part: "rest", files: map[string]string{"complete": "", "suite": "999999999"}, want: "done"},
		"one that never came up entirely": {part: "rest", files: map[string]string{}, want: "done"},
	} {
		t.Run(name, func(t *testing.T) {
			if said := runSuite(t, tt.files, tt.part); !strings.Contains(said[strings.LastIndex(strings.TrimSpace(said), "\n")+1:], tt.want) {
				t.Errorf("want %q at the end of\n%s", tt.want, said)
			}
		})
	}
}

// runSuite runs scripts/test with a cluster that is up and has these files, and with programs that do nothing.
func runSuite(t *testing.T, files map[string]string, part string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	run := filepath.Join(dir, "cluster", "run")
	cluster := fmt.Sprintf("#!/bin/sh\ncase $1 in up) mkdir -p %[1]s; touch %[1]s/complete ;; down) rm -rf %[1]s ;; status) [ -e %[1]s ] || exit 3 ;; esac\n", run)
	for name, text := range map[string]string{
		"scripts/test": textOf(t, "scripts/test"), "test/rest": textOf(t, "test/rest"), "test/long": textOf(t, "test/long"),
		"scripts/cluster": cluster, "scripts/release": "#!/bin/sh\n", "scripts/openstack": cluster,
		"bin/go": "#!/bin/sh\necho TestX\n", "bin/make": "#!/bin/sh\n", "build/logs/clocks": "", "build/logs/stalls": "",
	} {
		write(name, text)
	}
	for name, text := range files {
		write("cluster/run/"+name, text)
	}
	if files != nil {
		write("cluster/run/x", "")
	}
	c := exec.Command("bash", filepath.Join(dir, "scripts", "test"), part)
	c.Env = []string{"PATH=" + filepath.Join(dir, "bin") + ":/usr/bin:/bin", "SLURMV_CLUSTER_DIR=" + filepath.Dir(run)}
	said, _ := c.CombinedOutput() // the last line says how it ended
	return string(said)
}

// sources returns the Go files of the product by their paths, without tests and bench.
func sources(t *testing.T) map[string][]byte {
	found := map[string][]byte{}
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(name, ".") || name == "testdata" || path == "build" || path == "bench"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		found[path], err = os.ReadFile(filepath.Join(root, path))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// receiver returns the name of the type that a method is of.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	of := f.Recv.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	return fmt.Sprint(of)
}
