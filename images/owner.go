package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/internal/program"
)

// open opens a regular file with the user's rights, for reading, and also returns its path
// without symbolic links. what names the file in messages. The error is an [*Error] that
// users understand.
func open(ctx context.Context, as owner.Owner, what, path string) (*os.File, string, error) {
	file, real, err := as.Open(ctx, path)
	if err != nil {
		return nil, "", explain(as, what, path, err)
	}
	return file, real, nil
}

// explain says in a sentence why path could not be opened.
func explain(as owner.Owner, what, path string, err error) error {
	var refused *fs.PathError
	e := &Error{What: what, Path: path, Err: err}
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR):
		e.Reason = "does not exist"
	case errors.Is(err, unix.ELOOP):
		e.Reason = "is a symbolic link that leads in a circle"
	case errors.Is(err, fs.ErrPermission) && errors.As(err, &refused) && refused.Op == "open":
		e.Reason = fmt.Sprintf("is not readable by %v", as)
	case errors.Is(err, fs.ErrPermission) && errors.As(err, &refused):
		e.Reason = fmt.Sprintf("is not readable by %v, who may not enter the directory %s", as, printable(filepath.Dir(refused.Path)))
	case errors.Is(err, owner.ErrDirectory) || errors.Is(err, owner.ErrNotRegular) || errors.Is(err, owner.ErrKernelFile):
		e.Reason = err.Error()
	case errors.As(err, &refused):
		e.Reason = "cannot be opened: " + refused.Err.Error()
	default:
		return fmt.Errorf("open %s %s: %w", what, printable(path), err)
	}
	return e
}

// createFor makes an empty file that belongs to the user. The directory may be the user's,
// so createFor opens no existing file.
func createFor(path string, as owner.Owner) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := file.Chown(int(as.UID), int(as.GID)); err != nil {
		return nil, errors.Join(err, file.Close(), os.Remove(path))
	}
	return file, nil
}

// Limits of qemu-img. An image can be made so that qemu-img needs hours and any amount of
// memory. OpenStack Nova has the same limits for the same purpose.
//
// Addresses count as memory. Each thread would take as many for its stack as the user's
// limit says, a gigabyte with some users, and 128 MiB for an arena of its own.
const (
	qemuImgMemory = "1073741824" // bytes of address space
	qemuImgCPU    = "30"         // seconds
	qemuImgStack  = "2097152:"   // bytes of each thread; the colon leaves the hard limit
	qemuImgTime   = 2 * time.Minute
)

// readWithQEMU makes QEMU itself open the image and all files below it, and returns the beginning of the disk as a VM
// would see it: at most [bootSectors]. QEMU has the owner's rights: root parses no tables of qcow2. Owners can change
// what is read, but the firmware of their VMs is their own choice anyway.
func readWithQEMU(ctx context.Context, image Layer, as owner.Owner) ([]byte, error) {
	fd, err := unix.MemfdCreate("slurmv-boot-sectors", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	file := os.NewFile(uintptr(fd), "boot sectors")
	defer file.Close()
	// The child's first extra file is its descriptor 3.
	err = runQEMUImg(ctx, as, []*os.File{file}, "dd", "-U", "-f", image.Format, "-O", Raw, "bs="+strconv.Itoa(bootSectors*sector),
		"count=1", "if="+image.Path, "of=/proc/self/fd/3")
	var failed *exec.ExitError
	switch {
	case errors.As(err, &failed):
		return nil, &Error{Path: image.Path, Reason: "cannot be opened by QEMU: " + err.Error(), Err: err}
	case err != nil:
		return nil, err
	}
	start := make([]byte, bootSectors*sector)
	n, err := file.ReadAt(start, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return start[:n], err
}

// programs is the directory in which qemu-img is looked for first; tests set it.
var programs = ""

// runQEMUImg runs qemu-img as the owner. Its output is not used except in errors, because
// owners can change what their own processes print. Its descriptors from 3 on are files.
func runQEMUImg(ctx context.Context, as owner.Owner, files []*os.File, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, qemuImgTime)
	defer cancel()
	qemuImg, err := program.Find(programs, "qemu-img")
	if err != nil {
		return fmt.Errorf("qemu-img is not installed on this node: %w", err)
	}
	prlimit, err := program.Find("", "prlimit")
	if err != nil {
		return err
	}
	args = append([]string{"--as=" + qemuImgMemory, "--cpu=" + qemuImgCPU, "--stack=" + qemuImgStack, "--core=0", "--", qemuImg}, args...)
	cmd := as.Command(ctx, prlimit, args...)
	var stderr owner.Tail
	cmd.Stderr, cmd.ExtraFiles = &stderr, files
	cmd.Env = append(cmd.Env, "MALLOC_ARENA_MAX=1")
	err = cmd.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("qemu-img: %w", context.Cause(ctx))
	case stderr.Line() != "":
		return fmt.Errorf("%s (%w)", stderr.Line(), err)
	}
	return fmt.Errorf("qemu-img: %w", err)
}
