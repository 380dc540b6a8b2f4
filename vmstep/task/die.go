package task

import (
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is the kernel's struct, large enough on every architecture. With all bytes zero
// it means the default action.
type sigaction [4]uint64

// dieBy ends this process by a signal. Go handles most signals itself and would exit with a
// code, so dieBy restores the default action behind Go's back. It forbids a core file,
// which would be the relay's and not the program's.
func dieBy(number unix.Signal) {
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	var byDefault sigaction
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(number), uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
	_ = unix.Kill(os.Getpid(), number)
	// The signal is on its way, or its default action does not end a process.
	time.Sleep(time.Second)
	os.Exit(128 + int(number))
}
