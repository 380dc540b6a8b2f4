package shm

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/internal/filetest"
)

func TestWhatOneWritesAnotherReads(t *testing.T) {
	path := filetest.Device(t, 1<<16)
	t.Setenv(EnvDevice, path)
	one, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	other, err := OpenDevice(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(one.Bytes()) != 1<<16 {
		t.Errorf("%d bytes", len(one.Bytes()))
	}
	one.Bytes()[1<<16-1] = 7
	if got := other.Bytes()[1<<16-1]; got != 7 {
		t.Errorf("the other reads %d", got)
	}
	if err := errors.Join(one.Close(), other.Close()); err != nil || one.Bytes() != nil {
		t.Errorf("%v, %d bytes after Close", err, len(one.Bytes()))
	}
}

func TestOpenWithoutMemory(t *testing.T) {
	t.Setenv(EnvDevice, "")
	if _, err := Open(); !errors.Is(err, ErrNone) {
		t.Errorf("error = %v, want %v", err, ErrNone)
	}
	if _, err := OpenDevice("ivshmem99"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "/dev/slurmv/ivshmem99") {
		t.Errorf("error = %v", err)
	}
}

var rankLists = map[string]struct {
	text string
	want []int
	bad  bool
}{
	"none":               {"", nil, false},
	"one":                {"0", []int{0}, false},
	"a range":            {"0-3", []int{0, 1, 2, 3}, false},
	"ranges and numbers": {"1,3-5,8,10-11", []int{1, 3, 4, 5, 8, 10, 11}, false},
	"a range of one":     {"4-4", []int{4}, false},
	"words":              {"all", nil, true},
	"a range backwards":  {"3-1", nil, true},
	"numbers backwards":  {"3,1", nil, true},
	"a rank twice":       {"1,1", nil, true},
	"a negative rank":    {"-1", nil, true},
	"no end":             {"1-", nil, true},
	"an empty part":      {"1,,2", nil, true},
	"endless":            {"0-2147483647", nil, true},
}

func TestPeers(t *testing.T) {
	for name, tt := range rankLists {
		t.Run(name, func(t *testing.T) {
			t.Setenv(EnvPeers, tt.text)
			got, err := Peers()
			if !slices.Equal(got, tt.want) || (err != nil) != tt.bad {
				t.Errorf("%v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

const client = `
#include <slurmv_ivshmem.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	struct slurmv_ivshmem shm;
	(void)argv;
	if (argc > 1) {
		if (slurmv_ivshmem_open(&shm)) {
			puts(errno == ENODEV ? "none" : "failed");
			return 0;
		}
		printf("%zu %d\n", shm.size, ((char *)shm.base)[shm.size - 1]);
		((char *)shm.base)[0] = 5;
		slurmv_ivshmem_close(&shm);
		return 0;
	}
	for (int r = slurmv_ivshmem_next_peer(-1); r >= 0; r = slurmv_ivshmem_next_peer(r))
		printf("%d%s", r, slurmv_ivshmem_is_peer(r) ? " " : "? ");
	printf("%d%d\n", slurmv_ivshmem_is_peer(2), slurmv_ivshmem_is_peer(-1));
}
`

// The header for C uses the same variables as this package, and reads them in the same
// way.
func TestHeaderForC(t *testing.T) {
	dir := t.TempDir()
	source, program := filepath.Join(dir, "client.c"), filepath.Join(dir, "client")
	if err := os.WriteFile(source, []byte(client), 0o600); err != nil {
		t.Fatal(err)
	}
	for compiler, language := range map[string]string{"cc": "c", "c++": "c++"} {
		t.Run(language, func(t *testing.T) {
			if _, err := exec.LookPath(compiler); err != nil {
				t.Skip("no compiler: install gcc and g++")
			}
			out, err := exec.Command(compiler, "-Wall", "-Wextra", "-Werror", "-I..", "-o", program, "-x", language, source).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			testClient(t, program)
		})
	}
}

func testClient(t *testing.T, program string) {
	t.Helper()
	run := func(want, variable, value string, args ...string) {
		t.Helper()
		c := exec.Command(program, args...)
		c.Env = []string{variable + "=" + value}
		if got, err := c.Output(); err != nil || string(got) != want+"\n" {
			t.Errorf("%s=%s: %q, %v; want %q", variable, value, got, err, want)
		}
	}
	run("0 1 2 3 8 10", EnvPeers, "0-3,8")
	run("00", EnvPeers, "")
	run("00", EnvPeers, "all")
	run("2 10", EnvPeers, "2-2")
	run("none", EnvDevice, "", "open")
	run("failed", EnvDevice, "/dev/slurmv/ivshmem99", "open")

	path := filetest.Device(t, 1<<16)
	m, err := OpenDevice(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	m.Bytes()[1<<16-1] = 3
	run("65536 3", EnvDevice, path, "open")
	if m.Bytes()[0] != 5 {
		t.Error("what C wrote is not there")
	}
}
