package task

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// dieVariable makes this test program die by a signal.
const dieVariable = "SLURMV_TEST_DIE"

func TestATaskDiesByTheSignalOfItsProgram(t *testing.T) {
	if number, err := strconv.Atoi(os.Getenv(dieVariable)); err == nil {
		dieBy(unix.Signal(number))
	}
	// Those that Go would turn into an exit code are among them.
	for _, number := range []unix.Signal{unix.SIGTERM, unix.SIGKILL, unix.SIGSEGV, unix.SIGABRT, unix.SIGQUIT, unix.SIGBUS, unix.SIGUSR1, unix.SIGPIPE} {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), dieVariable+"="+strconv.Itoa(int(number)))
		err := cmd.Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			t.Errorf("%v: the process ended with %v", number, err)
			continue
		}
		if status := exit.Sys().(syscall.WaitStatus); status.Signal() != number || status.CoreDump() {
			t.Errorf("%v: the process ended with %v", number, exit)
		}
	}
}
