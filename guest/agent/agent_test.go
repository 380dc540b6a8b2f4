package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/guest"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFindPort(t *testing.T) {
	tests := map[string]struct {
		files map[string]string
		want  string
	}{
		"by udev's link": {map[string]string{
			"dev/virtio-ports/" + guest.PortName:   "",
			"sys/class/virtio-ports/vport1p2/name": guest.PortName + "\n",
		}, "dev/virtio-ports/" + guest.PortName},
		"by the kernel's name": {map[string]string{
			"sys/class/virtio-ports/vport1p1/name": "org.qemu.guest_agent.0\n",
			"sys/class/virtio-ports/vport1p2/name": guest.PortName + "\n",
		}, "dev/vport1p2"},
		"not at all": {map[string]string{
			"sys/class/virtio-ports/vport1p1/name": "org.qemu.guest_agent.0\n",
		}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range tt.files {
				write(t, filepath.Join(root, path), text)
			}
			got, err := findPort(root)
			if (err != nil) != (tt.want == "") {
				t.Errorf("error = %v", err)
			}
			if tt.want != "" && got != filepath.Join(root, tt.want) {
				t.Errorf("port = %s, want %s", got, tt.want)
			}
		})
	}
}

// A port without a host reports a hang-up, as the writing end of a pipe does
// whose reader has gone.
func TestOpenPortWaitsForTheHost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "port")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	port, err := openPort(t.Context(), slog.New(slog.DiscardHandler), path)
	if err != nil {
		t.Fatal(err)
	}
	if connected, err := hostConnected(port); !connected || err != nil {
		t.Errorf("connected = %v, %v", connected, err)
	}
	_ = port.Close()

	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if connected, err := hostConnected(r); connected || err != nil {
		t.Errorf("connected to nobody = %v, %v", connected, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := awaitHost(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("wait = %v", err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the port is still open: %v", err)
	}
	if _, err := openPort(ctx, slog.New(slog.DiscardHandler), path+"-none"); !errors.Is(err, context.Canceled) {
		t.Errorf("a port that never comes: %v", err)
	}
}

func TestKernelLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kmsg")
	write(t, path, "")
	log := slog.New(newKernelLog(path))
	log.Info("started", "port", "a b")
	log.Warn("odd")
	log.Error("bad\nnews")
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := "<30>slurmv-guest: msg=started port=\"a b\"\n<28>slurmv-guest: msg=odd\n<27>slurmv-guest: msg=\"bad\\nnews\"\n"
	if string(got) != want {
		t.Errorf("log = %q, want %q", got, want)
	}
}

func TestLogWithoutKernel(t *testing.T) {
	k := newKernelLog(filepath.Join(t.TempDir(), "none"))
	var out bytes.Buffer
	k.out = &out
	slog.New(k).Info("started")
	if out.String() != "slurmv-guest: msg=started\n" {
		t.Errorf("log = %q", &out)
	}
}

func TestIsMountPoint(t *testing.T) {
	for path, want := range map[string]bool{"/proc": true, t.TempDir(): false} {
		if got, err := isMountPoint(path); got != want || err != nil {
			t.Errorf("%s: %v, %v", path, got, err)
		}
	}
}
