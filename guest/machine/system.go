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

// A system is what the VM is made of for those who change it. The functions are the
// seams: nil, and "" for root, in earnest.
type system struct {
	logger *slog.Logger

	root        string // what is below /
	setHostName func(name []byte) error
	mount       func(source, target, fstype string, flags uintptr, data string) error
	run         func(ctx context.Context, input, name string, args ...string) error
	sysfs       func(file, value string) error
	reseedWith  func(seed []byte) error
}

// path is a path of the machine.
func (s *system) path(elem ...string) string {
	return filepath.Join(append([]string{"/", s.root}, elem...)...)
}

// command runs a program of the image. The error has its last words.
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

// modules loads drivers that are not there yet. Where they are part of the
// kernel, or udev has loaded them, or there is no modprobe, nothing happens.
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

// writeSysfs writes to a file of the kernel's.
func (s *system) writeSysfs(file, value string) error {
	if s.sysfs != nil {
		return s.sysfs(file, value)
	}
	return os.WriteFile(s.path(file), []byte(value), 0o200)
}
