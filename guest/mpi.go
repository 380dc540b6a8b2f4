package guest

import (
	"bufio"
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// An MPI library that does not find Slurm's PMI starts each of its ranks as a world of one, and
// all of them end well. So the guest looks for the library of a program that has been offered
// PMI, and tells the host, who knows whether the program has used it.

// mpiLibrary matches the names of MPI libraries: libmpi.so.40 (Open MPI), libmpi.so.12 (Intel
// MPI, MVAPICH), libmpich.so.12 (Debian's MPICH), libmpi_cray.so.12, libmpi_gnu_123.so.12,
// libmpi_ibm.so.3; and of those for Fortran and C++, which a program may name alone:
// libmpi_mpifh.so.40, libmpifort.so.12, libmpichcxx.so.12.
var mpiLibrary = regexp.MustCompile(`^libmpi(ch)?(fort|cxx|f90)?(_[a-z0-9_]+)?\.so(\.[0-9]+)*$`)

// libraryOf returns the MPI library that a program was linked with; "" if there is none, or
// the file is no program of this machine's kind, such as a script.
func libraryOf(path string) (library string) {
	defer func() {
		if recover() != nil { // the file is the user's, and debug/elf trusts files
			library = ""
		}
	}()
	file, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	libraries, _ := file.ImportedLibraries()
	if i := slices.IndexFunc(libraries, mpiLibrary.MatchString); i >= 0 {
		return libraries[i]
	}
	return ""
}

// tellLibrary tells the agent which MPI library the program is linked with. It writes to the
// socket that the exec closes.
func tellLibrary(path string) {
	if library := libraryOf(path); library != "" {
		_, _ = unix.Write(launchFD, []byte(library+"\n"))
	}
}

// readLibrary reads what tellLibrary has written, until the program runs.
func readLibrary(child io.Reader) string {
	line, _ := bufio.NewReader(io.LimitReader(child, 256)).ReadString('\n')
	_, _ = io.Copy(io.Discard, child)
	if name := string(bytes.TrimSpace([]byte(line))); mpiLibrary.MatchString(name) {
		return name
	}
	return ""
}

// The first and the longest pause between two looks at what a program has mapped. If the kernel does not tell of all
// (see [mappings]), a program that runs for less than the longest may be missed.
const (
	firstLook   = 200 * time.Millisecond
	longestLook = time.Second
)

// awaitLibrary looks again and again which MPI library the program uses. It returns "" if the program ends before.
func (p *program) awaitLibrary(ended <-chan struct{}) string {
	for pause := firstLook; ; pause = min(2*pause, longestLook) {
		select {
		case <-ended:
			return ""
		case <-time.After(pause):
		}
		if library := p.library(); library != "" {
			return library
		}
	}
}

// library returns the MPI library that a process of the program has mapped until now, or "".
func (p *program) library() string {
	library, all := ownMappings.library(p.child.Process.Pid)
	if library == "" && !all && p.group != nil {
		return p.group.mapped()
	}
	return library
}

// mapped returns the MPI library that a process of the cgroup has mapped just now, or "".
func (g *cgroup) mapped() string {
	list, _ := os.ReadFile(g.procs())
	for _, word := range bytes.Fields(list) {
		if pid, err := strconv.Atoi(string(word)); err == nil {
			if library := mappedBy(pid); library != "" {
				return library
			}
		}
	}
	return ""
}

func mappedBy(pid int) string {
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return ""
	}
	defer func() { _ = maps.Close() }()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		fields := bytes.Fields(lines.Bytes())
		if len(fields) < 6 {
			continue
		}
		if name := filepath.Base(string(fields[5])); mpiLibrary.MatchString(name) {
			return name
		}
	}
	return ""
}
