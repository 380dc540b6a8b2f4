package hypervisor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A QEMU that prints without end, as libvirt has opened its log.
func TestEmulatorLogsAreBounded(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) *os.File {
		t.Helper()
		file, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("quiet.log", "short")
	loud := write("loud.log", strings.Repeat("x", 1001))
	victim := filepath.Join(t.TempDir(), "victim")
	err := errors.Join(
		os.WriteFile(victim, make([]byte, 2000), 0o600),
		os.Symlink(victim, filepath.Join(dir, "link.log")))
	if err != nil {
		t.Fatal(err)
	}

	cut, err := truncateBeyond(dir, 1000)
	if diff := cmp.Diff([]string{"loud.log"}, cut); diff != "" || err != nil {
		t.Errorf("cut off (-want +got):\n%s%v", diff, err)
	}
	if _, err := loud.WriteString("more"); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		filepath.Join(dir, "loud.log"): "more", filepath.Join(dir, "quiet.log"): "short", victim: string(make([]byte, 2000)),
	} {
		if got, err := os.ReadFile(file); string(got) != want || err != nil {
			t.Errorf("%s holds %d bytes, want %d; %v", filepath.Base(file), len(got), len(want), err)
		}
	}
	if cut, err := truncateBeyond(dir, 1000); len(cut) != 0 || err != nil {
		t.Errorf("again: %v, %v", cut, err)
	}
}

func TestLastWordsOfAQEMU(t *testing.T) {
	const started = `2026-11-29 11:14:18.814+0000: starting up libvirt version: 11.3.0, hostname: n2
LC_ALL=C \
/usr/bin/qemu-system-x86_64 \
-name guest=vm2 \
-msg timestamp=on
2026-11-29 11:14:18.814+0000: Domain id=2 is tainted: high-privileges
`
	for name, tt := range map[string]struct{ log, want string }{
		"nothing":           {started, ""},
		"a warning":         {started + "qemu-system-x86_64: warning: fd: migration to a file is deprecated.\n", ""},
		"an assertion":      {started + "qemu-system-x86_64: ../pci.c:1: f: Assertion `x' failed.\n2026-11-29 11:14:20.003+0000: shutting down, reason=crashed\n", "qemu-system-x86_64: ../pci.c:1: f: Assertion `x' failed."},
		"what it said last": {started + "one\n\ntwo", "two"},
		"without end":       {started + strings.Repeat("x", 1000), strings.Repeat("x", 300)},
		"a second start":    {started + "one\n" + started, ""},
		"a log cut off":     {"one\n", "one"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "vm2.log"), []byte(tt.log), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := LastWords(dir, "vm2"); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	if got := LastWords(t.TempDir(), "vm2"); got != "" {
		t.Errorf("without a log: %q", got)
	}
}
