package mpi

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/slurm-v/slurm-v/internal/filetest"
)

const (
	deviceSize = 32 << 20
	programs   = 1 << 20
)

// build makes the library as the product has it, and a program that uses it.
func build(t *testing.T) (library, program string) {
	t.Helper()
	dir := t.TempDir()
	program = filepath.Join(dir, "shared")
	sources, _ := filepath.Glob("*.[chm]*")
	filetest.Build(t, []string{"testdata/shared.c"}, []string{"cc", "-O1", "-o", program, "testdata/shared.c", "-pthread"})
	return filetest.Make(t, "../..", dir, "libslurmv-mpi.so", sources...), program
}

// in is a program in a VM.
func in(vm int, library, device, program string, args ...string) *exec.Cmd {
	c := exec.Command(program, args...)
	c.Env = append(os.Environ(), "LD_PRELOAD="+library,
		"SLURMV_MPI_SHM="+device+":5e1f5e1f-0000-4000-8000-000000000001:"+strconv.Itoa(vm)+":"+strconv.Itoa(programs))
	return c
}

func run(t *testing.T, c *exec.Cmd) string {
	t.Helper()
	out, err := c.CombinedOutput()
	if err != nil {
		t.Errorf("%q: %v\n%s", c.Args, err, out)
	}
	return string(out)
}

func TestFilesOfMPI(t *testing.T) {
	library, program := build(t)
	for _, part := range []string{"files", "pieces", "descriptors", "refused", "stale", "threads", "children", "other_programs", "forks", "robust", "clocks", "calls"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			if out := run(t, in(0, library, filetest.Device(t, deviceSize), program, part)); out != "" {
				t.Errorf("it says %s", out)
			}
		})
	}
}

// A program may use the device itself. Then MPI leaves it the beginning; if MPI has that
// already, the program is told what to do.
func TestProgramsOfTheDevice(t *testing.T) {
	library, program := build(t)
	device, other := filetest.Device(t, deviceSize), filetest.Device(t, deviceSize)
	run(t, in(0, library, device, program, "device", device, strconv.Itoa(programs)))
	out := run(t, in(0, library, other, program, "taken", other))
	if want := "run this program with --mpi-shm=off"; !strings.Contains(out, want) {
		t.Errorf("%q is missing in %s", want, out)
	}
}

// A child of a process that was just opening the device opens it itself.
func TestForkWhileTheDeviceIsOpened(t *testing.T) {
	library, program := build(t)
	device := filetest.Device(t, deviceSize)
	if out := run(t, in(0, library, device, program, "forks-early", device)); out != "" {
		t.Errorf("it says %s", out)
	}
}

// A process that gets no room says so once, also if it asks again.
func TestNoRoomIsSaidOnce(t *testing.T) {
	library, program := build(t)
	out := run(t, in(0, library, filetest.Device(t, deviceSize), program, "no-room"))
	if want := "slurm-v: no room for a file of "; strings.Count(out, want) != 1 || strings.Count(out, "\n") != 1 {
		t.Errorf("%q is not the one line of %s", want, out)
	}
}

// Locks hold between processes of two VMs, whose threads may have the same numbers.
func TestLocksBetweenVMs(t *testing.T) {
	library, program := build(t)
	device := filetest.Device(t, deviceSize)
	run(t, in(0, library, device, program, "make-locks"))
	both(t, in(0, library, device, program, "locks", "0"), in(1, library, device, program, "locks", "1"))
}

// both runs two programs that wait for each other.
func both(t *testing.T, one, other *exec.Cmd) {
	t.Helper()
	var ended sync.WaitGroup
	ended.Go(func() { run(t, one) })
	ended.Go(func() { run(t, other) })
	ended.Wait()
}

// Two processes that use a lock in the same moment come to what they would come to one after the other.
func TestLocksInTheSameMoment(t *testing.T) {
	program := filepath.Join(t.TempDir(), "races")
	filetest.Build(t, []string{"testdata/races.c", "locks.c", "real.c", "settings.c"},
		[]string{"cc", "-O1", "-std=gnu11", "-D_GNU_SOURCE", "-o", program, "testdata/races.c", "real.c", "settings.c"})
	if out := run(t, exec.Command(program)); out != "" {
		t.Errorf("it says %s", out)
	}
}

// libraryOfUCX builds a library with the name of one of UCX's.
func libraryOfUCX(t *testing.T, name string) string {
	t.Helper()
	library := filepath.Join(t.TempDir(), name)
	filetest.Build(t, []string{"testdata/libucs.c"}, []string{"cc", "-shared", "-fPIC", "-Wl,-soname," + name, "-o", library, "testdata/libucs.c"})
	return library
}

// UCX finds the process of a neighbour in another VM. No other part of a program does.
func TestProcessesOfNeighbours(t *testing.T) {
	library, program := build(t)
	ucs := libraryOfUCX(t, "libucs.so.0")
	for name, part := range map[string][]string{"a library": {"neighbours", ucs}, "a part of the program": {"static-ucx"}} {
		t.Run("UCX is "+name, func(t *testing.T) {
			if out := run(t, in(0, library, filetest.Device(t, deviceSize), program, part...)); out != "" {
				t.Errorf("it says %s", out)
			}
		})
	}
}

// The relay hears by which transport MPI reaches a rank of another VM, and no file of the program's gets such a line.
func TestReportsGoToTheRelayAlone(t *testing.T) {
	library, program := build(t)
	device := filetest.Device(t, deviceSize)
	run(t, in(1, library, device, program, "make-peers"))
	if out := run(t, in(0, library, device, program, "reports")); out != "" {
		t.Errorf("it says %s", out)
	}
}

// MPICH without UCX talks through one file of all ranks of the node.
func TestMPICHsOwnTransport(t *testing.T) {
	library, program := build(t)
	ucp := libraryOfUCX(t, "libucp.so.0")
	for name, ucx := range map[string]string{"without UCX": "", "over UCX": ucp} {
		t.Run(name, func(t *testing.T) {
			device := filetest.Device(t, deviceSize)
			both(t, in(0, library, device, program, "one-file", ucx), in(1, library, device, program, "another-opens-it"))
		})
	}
}

// A rank that cannot open the device says why, once. The relay and UCX take it for a rank of its VM alone.
func TestARankWithoutItsDevice(t *testing.T) {
	library, program := build(t)
	if out, want := run(t, in(0, library, "/nowhere", program, "not-ready")), "slurm-v: no shared memory for MPI: /nowhere: No such file or directory\n"; out != want {
		t.Errorf("it says %q, want %q", out, want)
	}
}

// In an image with a glibc before 2.36, the functions behind ours are those that programs call without this library.
func TestConditionVariablesOfOldImages(t *testing.T) {
	library, program := build(t)
	old := filepath.Join(t.TempDir(), "old.so")
	filetest.Build(t, []string{"testdata/oldglibc.c", "testdata/oldglibc.map"},
		[]string{"cc", "-shared", "-fPIC", "-Wl,--version-script=testdata/oldglibc.map", "-o", old, "testdata/oldglibc.c"})
	if out := run(t, in(0, library+":"+old, filetest.Device(t, deviceSize), program, "conditions")); out != "" {
		t.Errorf("it says %s", out)
	}
}

// behind runs a part of the program with another library behind ours.
func behind(t *testing.T, source, part string) {
	t.Helper()
	library, program := build(t)
	other := filepath.Join(t.TempDir(), "other.so")
	filetest.Build(t, []string{source}, []string{"cc", "-shared", "-fPIC", "-o", other, source})
	if out := run(t, in(0, library+":"+other, filetest.Device(t, deviceSize), program, part)); out != "" {
		t.Errorf("it says %s", out)
	}
}

// A function that is nowhere behind ours fails, and is not called.
func TestFunctionsThatAnImageLacks(t *testing.T) { behind(t, "testdata/nolibrt.c", "missing") }

// A library that hears of forks, too, and was there before ours, does not wait for a lock that ours has around the fork.
func TestForkWithLocksOfAnotherLibrary(t *testing.T) { behind(t, "testdata/forklocks.c", "forks") }

// Nor does a thread that has the lock of such a library wait for one that forks, and waits for this lock.
func TestForkWhileAnotherThreadAllocates(t *testing.T) {
	behind(t, "testdata/forklocks.c", "forks-while-another-allocates")
}

// A file system in a library of the user's is asked about what is not MPI's.
func TestFilesOfTheUsersLibrary(t *testing.T) { behind(t, "testdata/userfs.c", "users-files") }

// A program that is not told of a device is left alone: the files are the machine's.
func TestWithoutADevice(t *testing.T) {
	library, program := build(t)
	c := exec.Command(program, "calls")
	c.Env = append(os.Environ(), "LD_PRELOAD="+library)
	run(t, c)
	if err := os.Remove("/dev/shm/ucx_shm_posix_call"); err != nil {
		t.Errorf("the file is not in the machine's own /dev/shm: %v", err)
	}
}

// Images may have a glibc as old as RHEL 7's, 2.17. Before 2.34, it had other libraries for functions that are behind ours.
func TestLibraryLoadsInOldImages(t *testing.T) {
	library, _ := build(t)
	filetest.NeedsGlibc(t, library, 17)
	file, err := elf.Open(library)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	libraries, err := file.ImportedLibraries()
	for _, want := range []string{"libdl.so.2", "librt.so.1", "libpthread.so.0"} {
		if err != nil || !slices.Contains(libraries, want) {
			t.Errorf("the library needs %q, without %s (%v)", libraries, want, err)
		}
	}
}
