package filetest

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// mpiProgram speaks to Slurm's PMI if its first argument is not empty: "asks" is init and finalize,
// "stays" only init. The second argument is how long it sleeps in between, in seconds, and the third its
// exit code.
const mpiProgram = `
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int MPI_Init(int *, char ***);
static void ask(const char *what) {
	int pmi = atoi(getenv("PMI_FD"));
	char answer[100];
	dprintf(pmi, "%s\n", what);
	if (read(pmi, answer, sizeof answer) <= 0)
		exit(2);
}
int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	if (argc > 1 && *argv[1])
		ask("cmd=init pmi_version=1 pmi_subversion=1");
	puts("computed");
	fflush(stdout);
	if (argc > 2)
		sleep(atoi(argv[2]));
	if (argc > 1 && !strcmp(argv[1], "asks"))
		ask("cmd=finalize");
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
