package filetest

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// mpiProgram speaks to Slurm's PMI if its first argument is not empty. The second argument is
// how long it then sleeps, in seconds, and the third its exit code.
const mpiProgram = `
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int MPI_Init(int *, char ***);
int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	if (argc > 1 && *argv[1]) {
		int pmi = atoi(getenv("PMI_FD"));
		char answer[100];
		dprintf(pmi, "cmd=init pmi_version=1 pmi_subversion=1\n");
		if (read(pmi, answer, sizeof answer) <= 0)
			return 2;
	}
	puts("computed");
	fflush(stdout);
	if (argc > 2)
		sleep(atoi(argv[2]));
	return argc > 3 ? atoi(argv[3]) : 0;
}`

const mpiStub = `int MPI_Init(int *argc, char ***argv) { return argc == (void *)argv; }`

// MPIProgram makes a program in the directory that is linked with an empty MPI library of
// that name, and returns its path.
func MPIProgram(t *testing.T, dir, library string) string {
	t.Helper()
	program := filepath.Join(dir, "program")
	Write(t, program+".c", mpiProgram)
	Write(t, filepath.Join(dir, "stub.c"), mpiStub)
	for _, args := range [][]string{
		{"-shared", "-fPIC", "-Wl,-soname," + library, "-o", library, "stub.c"},
		{"-o", "program", "program.c", library, "-Wl,-rpath,$ORIGIN"},
	} {
		cc := exec.CommandContext(t.Context(), "cc", args...)
		cc.Dir = dir
		if out, err := cc.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return program
}
