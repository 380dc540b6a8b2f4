package main

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// buildTags are those of the product, as in the Makefile.
const buildTags = "libvirt_dlopen"

// A mutant that does not compile proves nothing. To compile and link all of them takes an hour; to check their types
// takes seconds.
func TestEachMutantCompiles(t *testing.T) {
	source := listSource(t)
	for name, group := range byDirectory(all) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := source.parse(t, name)
			if err := p.check(p.whole); err != nil {
				t.Fatalf("without any mutant: %v", err)
			}
			for _, m := range group {
				if err := p.checkWith(m); err != nil {
					t.Errorf("%s: %v", m.Name, err)
				}
			}
		})
	}
}

// byDirectory groups the mutants of Go files.
func byDirectory(mutants []Mutant) map[string][]Mutant {
	groups := map[string][]Mutant{}
	for _, m := range mutants {
		if strings.HasSuffix(m.File, ".go") {
			dir := filepath.Dir(m.File)
			groups[dir] = append(groups[dir], m)
		}
	}
	return groups
}

// source is what the go command knows of the repository's packages and of those that they import.
type source map[string]listed // by import path

type listed struct {
	ImportPath, Dir, Export string
	GoFiles, CgoFiles       []string
}

func listSource(t *testing.T) source {
	t.Helper()
	c := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,CgoFiles", "-tags", buildTags, "./...")
	c.Dir, c.Stderr = root, os.Stderr
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	s := source{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var l listed
		switch err := d.Decode(&l); {
		case errors.Is(err, io.EOF):
			return s
		case err != nil:
			t.Fatal(err)
		}
		s[l.ImportPath] = l
	}
}

// A checked is a package whose types are checked, with one file after another replaced.
type checked struct {
	path     string
	fset     *token.FileSet
	whole    map[string]*ast.File // by the path in the repository
	importer types.Importer
}

func (s source) parse(t *testing.T, dir string) *checked {
	t.Helper()
	abs, err := filepath.Abs(filepath.Join(root, dir))
	if err != nil {
		t.Fatal(err)
	}
	p := &checked{fset: token.NewFileSet(), whole: map[string]*ast.File{}}
	p.importer = importer.ForCompiler(p.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(s[path].Export) })
	for _, l := range s {
		if l.Dir != abs {
			continue
		}
		p.path = l.ImportPath
		for _, f := range slices.Concat(l.GoFiles, l.CgoFiles) {
			if p.whole[filepath.Join(dir, f)], err = parser.ParseFile(p.fset, filepath.Join(abs, f), nil, parser.SkipObjectResolution); err != nil {
				t.Fatal(err)
			}
		}
	}
	return p
}

func (p *checked) check(files map[string]*ast.File) error {
	conf := types.Config{Importer: p.importer, FakeImportC: true, GoVersion: "go1.26"}
	_, err := conf.Check(p.path, p.fset, slices.Collect(maps.Values(files)), nil)
	return err
}

// checkWith checks the package with the mutant in it.
func (p *checked) checkWith(m Mutant) error {
	text, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return err
	}
	if text, err = m.apply(text); err != nil {
		return err
	}
	files := maps.Clone(p.whole)
	if files[m.File] == nil {
		return errors.New(m.File + " is not built with the product's tags")
	}
	if files[m.File], err = parser.ParseFile(p.fset, m.File, text, parser.SkipObjectResolution); err != nil {
		return err
	}
	return p.check(files)
}
