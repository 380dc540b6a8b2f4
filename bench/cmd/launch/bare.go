package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/guest"
)

// runBare runs on the node. It runs the VM that file describes and prints the seconds
// from the start of QEMU until the guest is set up like Slurm-V's guests. It makes the
// disk before that, as a user without Slurm-V would.
func runBare(file string) error {
	ctx, cancel := context.WithTimeout(context.Background(), readyTime)
	defer cancel()
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var m bare
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bare-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlay := filepath.Join(dir, "overlay.qcow2")
	if out, err := exec.Command("qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", m.Image, overlay).CombinedOutput(); err != nil {
		return fmt.Errorf("qemu-img: %w: %s", err, out)
	}
	took, err := m.boot(ctx, dir)
	if err == nil {
		fmt.Printf("%.3f\n", took.Seconds())
	}
	return err
}

// boot returns the time from the start of QEMU until the guest is set up.
func (m bare) boot(ctx context.Context, dir string) (time.Duration, error) {
	args := make([]string, len(m.Args))
	for i, a := range m.Args {
		args[i] = strings.ReplaceAll(a, "$DIR", dir)
	}
	qemu := exec.CommandContext(ctx, args[0], args[1:]...)
	qemu.Stderr = os.Stderr
	began := time.Now()
	if err := qemu.Start(); err != nil {
		return 0, err
	}
	defer func() { _ = qemu.Process.Kill(); _ = qemu.Wait() }()
	console, err := dial(ctx, filepath.Join(dir, "console"))
	if err != nil {
		return 0, err
	}
	go func() { _, _ = io.Copy(io.Discard, console) }()
	channel, err := dial(ctx, filepath.Join(dir, "channel"))
	if err != nil {
		return 0, err
	}
	session, err := guest.Connect(ctx, channel)
	if err != nil {
		return 0, err
	}
	defer session.Close()
	_, err = session.Setup(ctx, m.Setup)
	return time.Since(began), err
}

// dial connects to a socket of QEMU as soon as it exists.
func dial(ctx context.Context, path string) (net.Conn, error) {
	for {
		conn, err := net.Dial("unix", path)
		if err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("QEMU does not answer: %w", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
