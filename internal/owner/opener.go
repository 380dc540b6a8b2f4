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

// openerName is the word by which a program with this package knows that it has been
// started to open one file.
const openerName = "slurmv-opener"

// answerFD is where the answer goes.
const answerFD = 3

// maxAnswer bounds an answer, in bytes: a number and a path.
const maxAnswer = 8 + unix.PathMax

// The process that opens is this same program, which all that start it have at hand. It
// gets no further than here: neither main nor what other packages prepare, such as the
// loading of libvirt, is for it. (The runtime starts packages in the order of their names;
// this one needs none that comes late.)
func init() {
	if len(os.Args) != 2 || os.Args[0] != openerName {
		return
	}
	// It has nothing that the user may not have, but nobody need look into it.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	file, err := openRegular(os.Args[1])
	if err != nil {
		_ = unix.Sendmsg(answerFD, refusal(err), nil, nil, 0)
		os.Exit(1)
	}
	_ = unix.Sendmsg(answerFD, []byte{0}, unix.UnixRights(int(file.Fd())), nil, 0)
	os.Exit(0)
}

// openRegular finds the file first and opens it then: opening alone can do something to
// a device, or wait for ever.
func openRegular(path string) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	found, err := unix.Openat2(unix.AT_FDCWD, path, &how)
	if err != nil {
		return nil, blocked(path, err)
	}
	var is unix.Stat_t
	if err := unix.Fstat(found, &is); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if err := checkRegular(is.Mode); err != nil {
		return nil, err
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", found), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// blocked says what on the way to path could not be passed.
func blocked(path string, err error) error {
	var on *fs.PathError
	if _, walk := filepath.EvalSymlinks(path); errors.As(walk, &on) {
		return on
	}
	if _, plain := os.Stat(path); errors.Is(err, unix.ELOOP) && !errors.Is(plain, unix.ELOOP) {
		return ErrKernelFile // a link of the kernel's: it can be followed, and was not
	}
	return &fs.PathError{Op: "find", Path: path, Err: err}
}

// Reasons that are no error numbers, in a refusal.
const (
	reasonSystem = iota // an error number and a path
	reasonFile          // an error number of the opening itself, and a path
	reasonDirectory
	reasonNotRegular
	reasonKernelFile
)

var reasons = map[uint32]error{reasonDirectory: ErrDirectory, reasonNotRegular: ErrNotRegular, reasonKernelFile: ErrKernelFile}

// refusal is an error on its way: a reason, an error number, a path.
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

// readRefusal is refusal backwards.
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
