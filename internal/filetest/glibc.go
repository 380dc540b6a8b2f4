package filetest

import (
	"debug/elf"
	"strconv"
	"strings"
	"testing"
)

// NeedsGlibc checks that a program or library runs with glibc 2.MINOR.
func NeedsGlibc(t *testing.T, path string, minor int) {
	t.Helper()
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.ImportedSymbols()
	if err != nil || len(symbols) == 0 {
		t.Fatal(symbols, err)
	}
	for _, s := range symbols {
		parts := strings.Split(strings.TrimPrefix(s.Version, "GLIBC_"), ".")
		of, _ := strconv.Atoi(parts[min(1, len(parts)-1)])
		if s.Version != "" && of > minor {
			t.Errorf("%s is of %s", s.Name, s.Version)
		}
	}
}
