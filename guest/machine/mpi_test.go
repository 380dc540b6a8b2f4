package machine

import (
	"os"
	"slices"
	"testing"

	"github.com/slurm-v/slurm-v/guest"
)

// The files are in a file system of their own, from which programs may run, and a setup may be
// repeated.
func TestMPIFilesAreInTheVM(t *testing.T) {
	d := newDouble(t, map[string]string{})
	for range 2 {
		files := []guest.MPIFile{{Name: guest.MPILibrary, Content: []byte("ELF")}, {Name: guest.PMIxServer, Content: []byte("server")}}
		if err := d.mpiFiles(files); err != nil {
			t.Fatal(err)
		}
	}
	mounts := slices.DeleteFunc(slices.Clone(d.done), func(s string) bool { return len(s) < 5 || s[:5] != "mount" })
	if len(mounts) != 1 {
		t.Errorf("mounts = %q, want one", mounts)
	}
	for name, content := range map[string]string{guest.MPILibrary: "ELF", guest.PMIxServer: "server"} {
		file := guest.MPIDir + "/" + name
		info, err := os.Stat(d.path(file))
		if err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%v, %v", info, err)
		}
		if got := d.text(t, file); got != content {
			t.Errorf("%s is %q", file, got)
		}
	}
}
