package opensm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// daemon is the name of OpenSM's process and program.
const daemon = "opensm"

// tell sends SIGHUP to OpenSM: it then reads its partitions and looks at all ports. The note
// says if there is none to tell.
func tell(pidFile string) (note string, err error) {
	pids, note, err := processes(pidFile)
	if err != nil {
		return "", err
	}
	told := false
	for _, pid := range pids {
		was, e := hangUp(pid)
		told, err = told || was, errors.Join(err, e)
	}
	switch {
	case err != nil:
		return "", err
	case told:
		return "", nil
	case note == "" && pidFile != "":
		note = fmt.Sprintf("%s names process %d, which is %s and not OpenSM: ", pidFile, pids[0], nameOf(pids[0]))
	}
	return note + "OpenSM does not run on this host; the change takes effect when it starts", nil
}

// processes returns those that may be OpenSM, or a note why there are none.
func processes(pidFile string) (pids []int, note string, err error) {
	if pidFile == "" {
		return all(), "", nil
	}
	text, err := os.ReadFile(pidFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, pidFile + " is not there: ", nil
	}
	if err != nil {
		return nil, "", err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 {
		return nil, "", fmt.Errorf("%s has %.40q and not OpenSM's process id: give the file that `opensm --daemon --pidfile` writes, or none", pidFile, text)
	}
	return []int{pid}, "", nil
}

// all returns the ids of all processes.
func all() (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// hangUp sends SIGHUP to a process, if it is OpenSM. It opens a descriptor before it looks at
// the process: from then on the kernel cannot give the id to another one.
func hangUp(pid int) (told bool, err error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false, nil // it has ended
	}
	defer unix.Close(fd)
	if !isOpenSM(pid) {
		return false, nil
	}
	switch err := unix.PidfdSendSignal(fd, unix.SIGHUP, nil, 0); {
	case errors.Is(err, unix.ESRCH):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("tell OpenSM (process %d) of the change: %w; run it as root or as OpenSM's user", pid, err)
	}
	return true, nil
}

// isOpenSM looks at the owner and the program's file, too: a process chooses its name. Only
// root can look at the file of root's processes; for others the name has to do.
func isOpenSM(pid int) bool {
	if nameOf(pid) != daemon || !ownerMayRunIt(pid) {
		return false
	}
	exe, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
	if errors.Is(err, fs.ErrPermission) {
		return true
	}
	return err == nil && filepath.Base(strings.TrimSuffix(exe, " (deleted)")) == daemon
}

func nameOf(pid int) string {
	name, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	if err != nil {
		return "gone"
	}
	return strings.TrimSpace(string(name))
}

// ownerMayRunIt reports whether a process is root's or the caller's. Any user can start a
// program of that name.
func ownerMayRunIt(pid int) bool {
	var stat unix.Stat_t
	err := unix.Stat(filepath.Join("/proc", strconv.Itoa(pid)), &stat)
	return err == nil && (stat.Uid == 0 || stat.Uid == uint32(os.Geteuid()))
}
