package imagempi

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/internal/filetest"
)

// run runs a function of the script in an image that has only those files.
func run(t *testing.T, function string, files map[string]string) string {
	t.Helper()
	image := t.TempDir()
	for name, text := range files {
		filetest.Write(t, filepath.Join(image, name), text)
		if err := os.Chmod(filepath.Join(image, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// This machine has MPI libraries of its own, so the image has these programs only.
	for _, tool := range []string{"sed", "head", "sort"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(image, tool)); err != nil {
			t.Fatal(err)
		}
	}
	sh := exec.CommandContext(t.Context(), "/bin/sh", "-c", Shell+function)
	sh.Env = []string{"PATH=" + image + "/opt/bin:" + image, "SLURMV_TEST_IMAGE=" + image}
	out, err := sh.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

func TestMPIs(t *testing.T) {
	tests := map[string]struct {
		files map[string]string
		want  string
	}{
		"MPICH":     {map[string]string{"opt/bin/mpichversion": "#!/bin/sh\nprintf 'MPICH Version:    \\t4.0.2\\nMPICH Device: ch4:ucx\\n'"}, "pmi MPICH 4.0.2\n"},
		"Open MPI":  {map[string]string{"opt/bin/ompi_info": "#!/bin/sh\necho Open MPI v5.0.7; echo; echo more"}, "pmix Open MPI v5.0.7\n"},
		"MVAPICH":   {map[string]string{"opt/bin/mpiname": "#!/bin/sh\necho MVAPICH 3.0"}, "pmi MVAPICH 3.0\n"},
		"Intel MPI": {map[string]string{"opt/bin/impi_info": "#!/bin/sh\necho Intel MPI 2021"}, "pmi2 Intel MPI 2021\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := run(t, "mpis", tt.files); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// slurm-v-run --list-mpi says how each library's programs are started.
func TestHowProgramsAreStarted(t *testing.T) {
	script, err := os.ReadFile("../../vmstep/listmpi.sh")
	if err != nil {
		t.Fatal(err)
	}
	const intel, library = "opt/bin/impi_info", "usr/lib64/libpmi2.so.0"
	tests := map[string]struct {
		files map[string]string
		want  string // IMAGE stands for the image's directory
	}{
		"Open MPI":                     {map[string]string{"opt/bin/ompi_info": "#!/bin/sh\necho Open MPI v5.0.7"}, "Open MPI v5.0.7: slurm-v-run --mpi=pmix -n N PROGRAM\n"},
		"Intel MPI with Slurm's PMI-2": {map[string]string{intel: "#!/bin/sh\necho Intel MPI", library: ""}, "Intel MPI: I_MPI_PMI_LIBRARY=IMAGE/usr/lib64/libpmi2.so.0 slurm-v-run -n N PROGRAM\n"},
		"Intel MPI without it":         {map[string]string{intel: "#!/bin/sh\necho Intel MPI"}, "Intel MPI: slurm-v-run --launcher=ssh mpirun -n N PROGRAM\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := run(t, `echo "$SLURMV_TEST_IMAGE"; `+string(script), tt.files)
			image, said, _ := strings.Cut(got, "\n")
			if got := strings.ReplaceAll(said, image, "IMAGE"); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestPMILibraries(t *testing.T) {
	tests := map[string]struct {
		files map[string]string
		want  string
	}{
		"none":                    {nil, ""},
		"Debian's":                {map[string]string{"usr/lib/x86_64-linux-gnu/libpmi2.so.0": "", "usr/lib/x86_64-linux-gnu/libpmi2.so.0.0.0": "", "usr/lib/x86_64-linux-gnu/libpmix.so.2": ""}, "libpmi2.so.0\nlibpmix.so.2\n"},
		"twice":                   {map[string]string{"usr/lib64/libpmi.so.0": "", "usr/lib/libpmi.so.0": ""}, "libpmi.so.0\n"},
		"beside an mpirun":        {map[string]string{"opt/bin/mpirun": "#!/bin/sh\n", "opt/lib/libpmix.so.2": ""}, "libpmix.so.2\n"},
		"of others, with no name": {map[string]string{"usr/lib/libpmi.so": "", "usr/lib/libpmip.so.2": ""}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := run(t, "pmi_libraries", tt.files); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
