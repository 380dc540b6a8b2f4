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
	"path/filepath"
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

// A scenario that was renamed would run in `make test` again, however long it takes.
func TestTheListOfTheRestFitsTheScenarios(t *testing.T) {
	list, err := os.ReadFile(root + "/test/rest")
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(root + "/test/*_test.go")
	var scenarios []byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		scenarios = append(scenarios, text...)
	}
	for line := range strings.Lines(string(list)) {
		name := strings.TrimSpace(line)
		if name != "" && !strings.HasPrefix(name, "#") && !bytes.Contains(scenarios, []byte("\nfunc "+name+"(")) {
			t.Errorf("test/rest names %s, which is no scenario", name)
		}
	}
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
