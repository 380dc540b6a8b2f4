package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/guest"
)

// openPort waits until there is a port with a host behind it. It returns an error only if
// ctx ends.
func openPort(ctx context.Context, log *slog.Logger, device string) (*os.File, error) {
	said := ""
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		port, err := tryPort(device)
		if err == nil {
			return port, awaitHost(ctx, port)
		}
		if err.Error() != said {
			said = err.Error()
			log.Warn("no port yet", "err", err)
			_ = exec.CommandContext(ctx, "modprobe", "-q", "-a", "virtio_pci", "virtio_console").Run()
		}
		if err := sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}

func tryPort(device string) (*os.File, error) {
	if device == "" {
		var err error
		if device, err = findPort("/"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(device, os.O_RDWR|unix.O_NOCTTY, 0)
}

// findPort returns the port's device. Without udev there is no link with the port's name,
// but the kernel shows the name in sysfs.
func findPort(root string) (string, error) {
	link := filepath.Join(root, "dev/virtio-ports", guest.PortName)
	if _, err := os.Stat(link); err == nil {
		return link, nil
	}
	names, _ := filepath.Glob(filepath.Join(root, "sys/class/virtio-ports/*/name"))
	for _, file := range names {
		if name, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(name)) == guest.PortName {
			return filepath.Join(root, "dev", filepath.Base(filepath.Dir(file))), nil
		}
	}
	return "", fmt.Errorf("the VM has no virtio-serial port %s", guest.PortName)
}

// awaitHost returns when a host is connected. If ctx ends first, it closes the port. It
// polls, because reading a virtio-serial port without a host returns end of file.
func awaitHost(ctx context.Context, port *os.File) error {
	for {
		connected, err := hostConnected(port)
		if connected || err != nil {
			return err
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return errors.Join(err, port.Close())
		}
	}
}

func hostConnected(port *os.File) (connected bool, err error) {
	raw, err := port.SyscallConn()
	if err != nil {
		return false, err
	}
	err = raw.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		_, perr := unix.Poll(poll, 0)
		connected = perr == nil && poll[0].Revents&unix.POLLHUP == 0
	})
	return connected, err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
