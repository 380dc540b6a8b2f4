package filetest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Build runs commands that build programs from the sources, and reads the sources itself: go test
// keeps a test's result until a file changes that the test has opened.
func Build(t *testing.T, sources []string, commands ...[]string) {
	t.Helper()
	for _, file := range sources {
		if _, err := os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range commands {
		if out, err := exec.CommandContext(t.Context(), c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", c, err, out)
		}
	}
}

// Make makes a file of the product, such as libslurmv-mpi.so, in dir, from the sources. Root is the repository, seen from
// the test's directory. What is in the repository's build directory is taken from there; tests of several packages may
// want it at once, and one of them makes it.
func Make(t *testing.T, root, dir, file string, sources ...string) (path string) {
	t.Helper()
	makefile, path := filepath.Join(root, "Makefile"), filepath.Join(dir, file)
	Build(t, append(sources, makefile),
		[]string{"flock", makefile, "make", "-s", "-C", root, "BUILD=build", "build/" + file},
		[]string{"cp", filepath.Join(root, "build", file), path})
	return path
}

// Device makes a file of that many bytes, all zero, like the one with which the kernel shows the memory of an
// IVShmem device. Its path is about as short as a device's: programs keep it in 63 characters.
func Device(t *testing.T, size int64) string {
	t.Helper()
	file, err := os.CreateTemp("", "ivshmem")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(file.Name()) })
	if err := errors.Join(file.Truncate(size), file.Close()); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}
