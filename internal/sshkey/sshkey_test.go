package sshkey

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestNew(t *testing.T) {
	a, err := New("slurmv")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(a.Public, "ssh-ed25519 AAAA") || !strings.HasSuffix(a.Public, " slurmv") || strings.Contains(a.Public, "\n") {
		t.Errorf("public key = %q", a.Public)
	}
	public, err := Public(a.Private)
	if err != nil || public+" slurmv" != a.Public {
		t.Errorf("the private key belongs to %q, not to %q (%v)", public, a.Public, err)
	}
	if b, err := New("slurmv"); err != nil || a == b {
		t.Errorf("a second key is the same (%v)", err)
	}
}

func TestOpenSSHReadsTheKey(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("ssh-keygen is not installed: apt-get install openssh-client")
	}
	key, err := New("slurmv")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(key.Private), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("ssh-keygen", "-y", "-f", file).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != key.Public {
		t.Errorf("ssh-keygen reads %q, want %q (%v)", out, key.Public, err)
	}
}

func TestWhatIsNoKey(t *testing.T) {
	for _, text := range []string{"", "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n", "ssh-ed25519 AAAA"} {
		if got, err := Public(text); err == nil {
			t.Errorf("Public(%q) = %q", text, got)
		}
	}
}
