package prove

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// What a proof has in its directory.
const (
	PageFile = "prove.html"
	jsonFile = "prove.json"
	JobsDir  = "jobs"
)

// NewDirectory makes the directory, unless it is there and empty, and returns its absolute path. Files
// of an earlier proof would mix with those of this one.
func NewDirectory(path string) (string, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(path)
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("%s is not empty; name another directory", path)
	}
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// WriteFiles writes the proof as JSON and as a page.
func (p Proof) WriteFiles(dir string) error {
	return errors.Join(
		writeFile(filepath.Join(dir, jsonFile), p.WriteJSON),
		writeFile(filepath.Join(dir, PageFile), p.WriteHTML))
}

func writeFile(path string, what func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(what(f), f.Close())
}
