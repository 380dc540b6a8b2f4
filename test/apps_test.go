//go:build cluster

package test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// example reads a file of the examples.
func example(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../examples/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// submitExample submits a batch script of the examples beside its program.
func (u user) submitExample(t *testing.T, name, options, script string) *job {
	t.Helper()
	j := u.submit(t, "--hold "+options, script)
	u.writeFile(t, j.dir+"/"+name+".c", example(t, name+".c"))
	u.must(t, "scontrol release "+j.id)
	return j
}

// The applications run in four VMs on two nodes, and verify what they have found. For
// emulated VMs their problems are made smaller than in the examples.
func TestApplications(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ size, small, want string }{
		"bfs": {"-s 12 -k 4", "-s 10 -k 2", `(?m)^bfs: 2 searches in \S+ s, \S+ TEPS \(harmonic mean\): verified$`},
		"cg":  {"-i 2", "-i 1", `(?m)^cg: 1 iterations in \S+ s, zeta = 0\.4024\d+ by 4 ranks: verified$`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			script := example(t, name+".sbatch")
			if !strings.Contains(script, tt.size) {
				t.Fatalf("%s.sbatch has no %s", name, tt.size)
			}
			out := alice.submitExample(t, name, "", strings.Replace(script, tt.size, tt.small, 1)).completes()
			contains(t, out, "4 VMs on 2 nodes ready")
			if !regexp.MustCompile(tt.want).MatchString(out) {
				t.Errorf("no line %s in:\n%s", tt.want, out)
			}
		})
	}
}

// A program whose text has one mistake more says that its result is wrong. No VM is
// needed for that.
func TestApplicationsFindWrongResults(t *testing.T) {
	t.Parallel()
	const ask = "ask[count++] = (struct edge){neighbour[i], v};"
	tests := map[string]struct{ program, right, mistake, want string }{
		"no mistake in bfs":    {"bfs", "", "", "bfs: .*: verified"},
		"the key has a parent": {"bfs", "parent[key / ranks] = key;", "", "the key is not its own parent"},
		"parents of nobody":    {"bfs", ask, "ask[count++] = (struct edge){neighbour[i], neighbour[i]};", "the tree has a cycle"},
		"an early end":         {"bfs", "while (sum(size) > 0)", "if (sum(size) > 0)", "an edge leads out of the tree"},
		"a way round":          {"bfs", ask, "if (v != key || neighbour[i] % 2) " + ask, "an edge joins vertices that are more than a level apart"},
		"parents of others":    {"bfs", ask, "ask[count++] = (struct edge){neighbour[i], level[0]};", "no edge joins a vertex to its parent"},
		"no mistake in cg":     {"cg", "", "", "cg: .*: verified"},
		"one element":          {"cg", "make_matrix();\n\tzeta", "make_matrix();\n\tmatrix[7].value[3] *= 1.01;\n\tzeta", "iteration 1: .* WRONG"},
		"too few steps":        {"cg", "STEPS = 25", "STEPS = 8", "iteration 1: .* WRONG"},
		"part of a product":    {"cg", "MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);", "", "iteration 1: .* WRONG"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			source := example(t, tt.program+".c")
			if tt.right != "" && strings.Count(source, tt.right) != 1 {
				t.Fatalf("%s.c has not one %q", tt.program, tt.right)
			}
			dir := alice.must(t, "mktemp -d")
			alice.writeFile(t, dir+"/app.c", strings.Replace(source, tt.right, tt.mistake, 1))
			o := alice.run(t, fmt.Sprintf("cd %s && mpicc -O2 -o app app.c -lm && mpiexec -n 2 ./app 2>&1; status=$?; rm -r %[1]s; exit $status", dir))
			if !regexp.MustCompile(tt.want).MatchString(o.stdout) || (o.code == 0) != (tt.right == "") {
				t.Errorf("exit status %d, want it to say %q:\n%s%s", o.code, tt.want, o.stdout, o.stderr)
			}
		})
	}
}
