package machine

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A system gives access to the VM. The functions and root are for tests; in a real VM they
// are nil and "".
type system struct {
	logger *slog.Logger

	root        string // stands for / in tests
	setHostName func(name []byte) error
	mount       func(source, target, fstype string, flags uintptr, data string) error
	run         func(ctx context.Context, input, name string, args ...string) error
	sysfs       func(file, value string) error
	reseedWith  func(seed []byte) error
}

// path returns a path below root.
func (s *system) path(elem ...string) string {
	return filepath.Join(append([]string{"/", s.root}, elem...)...)
}

// command runs a program of the image. An error contains the last line of its output.
func (s *system) command(ctx context.Context, input, name string, args ...string) error {
	if s.run != nil {
		return s.run(ctx, input, name, args...)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(input)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s: %w: %s", name, err, lastLine(out.String()))
	}
	return nil
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// modules loads drivers that are missing. It does nothing if they are part of the kernel,
// if udev has loaded them, or if there is no modprobe.
func (s *system) modules(ctx context.Context, names ...string) {
	names = slices.DeleteFunc(names, func(name string) bool {
		_, err := os.Stat(s.path("sys/module", name))
		return err == nil
	})
	if len(names) == 0 {
		return
	}
	if err := s.command(ctx, "", "modprobe", append([]string{"-q", "-a"}, names...)...); err != nil {
		s.log().Debug("modules not loaded", "names", names, "err", err)
	}
}

func (s *system) log() *slog.Logger {
	if s.logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.logger
}

// writeSysfs writes to a file in sysfs.
func (s *system) writeSysfs(file, value string) error {
	if s.sysfs != nil {
		return s.sysfs(file, value)
	}
	return os.WriteFile(s.path(file), []byte(value), 0o200)
}
