package owner

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// openerName is the argument 0 that tells a program with this package to open one file.
const openerName = "slurmv-opener"

// answerFD is the descriptor to which the answer goes.
const answerFD = 3

// maxAnswer bounds an answer, in bytes: a number and a path.
const maxAnswer = 8 + unix.PathMax

// The process that opens is this same program, which every caller has at hand. It ends in
// this function: it must run neither main nor the init functions of other packages, such
// as the loading of libvirt. (The runtime initialises packages in the order of their
// names after their imports; this one imports nothing that comes late.)
func init() {
	if len(os.Args) != 3 || os.Args[0] != openerName {
		return
	}
	// The process has nothing secret, but other processes need not look into it.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	file, err := openAs(kind(os.Args[1]), os.Args[2])
	if err != nil {
		_ = unix.Sendmsg(answerFD, refusal(err), nil, nil, 0)
		os.Exit(1)
	}
	_ = unix.Sendmsg(answerFD, []byte{0}, unix.UnixRights(int(file.Fd())), nil, 0)
	os.Exit(0)
}

// openAs first finds the file without opening it: opening a device can have an effect, and
// opening a pipe can block for ever. A directory is only found.
func openAs(want kind, path string) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	found, err := unix.Openat2(unix.AT_FDCWD, path, &how)
	if err != nil {
		return nil, blocked(path, err)
	}
	var is unix.Stat_t
	if err := unix.Fstat(found, &is); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if err := want.check(is.Mode); err != nil {
		return nil, err
	}
	if want == directory {
		return os.NewFile(uintptr(found), path), nil
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", found), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// blocked says what could not be passed on the way to path.
func blocked(path string, err error) error {
	var on *fs.PathError
	if _, walk := filepath.EvalSymlinks(path); errors.As(walk, &on) {
		return on
	}
	if _, plain := os.Stat(path); errors.Is(err, unix.ELOOP) && !errors.Is(plain, unix.ELOOP) {
		return ErrKernelFile // os.Stat followed it: it is a link of the kernel
	}
	return &fs.PathError{Op: "find", Path: path, Err: err}
}

// Reasons in a refusal that are not error numbers.
const (
	reasonSystem = iota // an error number and a path
	reasonFile          // an error number of the opening itself, and a path
	reasonDirectory
	reasonNotRegular
	reasonKernelFile
	reasonNotDirectory
)

var reasons = map[uint32]error{reasonDirectory: ErrDirectory, reasonNotRegular: ErrNotRegular, reasonKernelFile: ErrKernelFile, reasonNotDirectory: ErrNotDirectory}

// refusal encodes an error for sending: a reason, an error number, a path.
func refusal(err error) []byte {
	var on *fs.PathError
	var number unix.Errno
	reason := uint32(reasonSystem)
	for known, is := range reasons {
		if errors.Is(err, is) {
			reason = known
		}
	}
	if !errors.As(err, &on) {
		on = &fs.PathError{}
	}
	if on.Op == "open" {
		reason = reasonFile
	}
	_ = errors.As(err, &number)
	text := binary.NativeEndian.AppendUint32(nil, reason)
	text = binary.NativeEndian.AppendUint32(text, uint32(number))
	return append(text, on.Path[:min(len(on.Path), unix.PathMax)]...)
}

// readRefusal is the inverse of refusal.
func readRefusal(text []byte) error {
	if len(text) < 8 {
		return errors.New("the process that was to open the file gave no sensible answer")
	}
	reason, number := binary.NativeEndian.Uint32(text), binary.NativeEndian.Uint32(text[4:])
	if err := reasons[reason]; err != nil {
		return err
	}
	on := &fs.PathError{Op: "find", Path: string(text[8:]), Err: unix.Errno(number)}
	if reason == reasonFile {
		on.Op = "open"
	}
	return on
}
