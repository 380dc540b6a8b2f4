package machine

import (
	"os"
	"slices"
	"testing"
)

// The library is in a file system of its own, from which programs may run, and a setup may be
// repeated.
func TestMPILibraryIsInTheVM(t *testing.T) {
	d := newDouble(t, map[string]string{})
	for range 2 {
		if err := (ivshmemDevices{&d.system}).offerMPILibrary([]byte("ELF")); err != nil {
			t.Fatal(err)
		}
	}
	mounts := slices.DeleteFunc(slices.Clone(d.done), func(s string) bool { return len(s) < 5 || s[:5] != "mount" })
	if len(mounts) != 1 {
		t.Errorf("mounts = %q, want one", mounts)
	}
	info, err := os.Stat(d.path(mpiLibrary))
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
	if got := d.text(t, mpiLibrary); got != "ELF" {
		t.Errorf("the library is %q", got)
	}
}
