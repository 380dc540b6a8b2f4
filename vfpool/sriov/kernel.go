package sriov

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/slurm-v/slurm-v/internal/owner"
)

// A Kernel is what of the node's files is more than text. Paths are absolute.
type Kernel interface {
	// Write writes a value to a file of sysfs, and the kernel acts on it.
	Write(path, value string) error

	// Owner and SetOwner read and set the owner of /dev/vfio/GROUP. While SetOwner
	// changes owner and mode, neither account gets the other's rights.
	Owner(path string) (owner.IDs, fs.FileMode, error)
	SetOwner(path string, owner owner.IDs, mode fs.FileMode) error

	// Free returns EBUSY while a program has /dev/vfio/GROUP open.
	Free(path string) error

	// End kills the processes of uid that have /dev/vfio/GROUP open.
	End(ctx context.Context, path string, uid uint32) error

	// Load loads a kernel module.
	Load(module string) error
}

// kernel is the real Kernel.
type kernel struct{}

// Write appends a newline, because writing an empty value would not be a write at all.
func (kernel) Write(path, value string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(value + "\n")
	return errors.Join(err, file.Close())
}

func (kernel) Owner(path string) (owner.IDs, fs.FileMode, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return owner.IDs{}, 0, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return owner.IDs{}, 0, fmt.Errorf("%s: no owner", path)
	}
	return owner.IDs{UID: stat.Uid, GID: stat.Gid}, info.Mode().Perm(), nil
}

func (kernel) SetOwner(path string, owner owner.IDs, mode fs.FileMode) error {
	if err := os.Chmod(path, 0); err != nil {
		return err
	}
	if err := os.Lchown(path, int(owner.UID), int(owner.GID)); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

func (kernel) Free(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return file.Close()
}

func (kernel) Load(module string) error {
	program, err := os.ReadFile("/proc/sys/kernel/modprobe")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, strings.TrimSpace(string(program)), "--", module)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, strings.TrimSpace(stderr.String()))
	}
	return nil
}
