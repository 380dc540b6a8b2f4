package secret

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode, uid int) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, uid, -1); err != nil {
			t.Skip("run as root: the test makes a file that belongs to another user")
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	fifo, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "link")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	self := os.Geteuid()
	if err := os.Symlink(write("target", "text\n", 0o600, self), link); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		path string
		err  string
	}{
		"for its owner and group": {write("group", "text\n", 0o640, self), ""},
		"for its owner":           {write("owner", "text\n", 0o400, self), ""},
		"by a link":               {link, ""},
		"that is not there":       {filepath.Join(dir, "none"), "open DIR/none: no such file or directory"},
		"that everybody reads":    {write("read", "text\n", 0o644, self), "DIR/read has the mode 0644, with which every user can open it: chmod 0640 DIR/read, and replace the secret in it"},
		"that everybody writes":   {write("written", "text\n", 0o602, self), "DIR/written has the mode 0602, with which every user can open it: "},
		"that its group writes":   {write("shared", "text\n", 0o660, self), "DIR/shared has the mode 0660, with which its group can change it: chmod 0640 DIR/shared"},
		"of another user":         {write("user", "text\n", 0o600, 6002), "DIR/user belongs to user 6002, who could change it: chown root DIR/user"},
		"that is a directory":     {dir, "DIR is not a file"},
		"that is a FIFO":          {fifo, "DIR/fifo is not a file"},
		"that is too large":       {write("large", strings.Repeat("x", MaxSize+1), 0o600, self), "DIR/large is larger than 16384 bytes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			text, err := ReadFile(tt.path)
			if want := strings.ReplaceAll(tt.err, "DIR", dir); want == "" != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), want) {
				t.Errorf("error = %v, want %s", err, want)
			}
			if err == nil && text != "text\n" || err != nil && text != "" {
				t.Errorf("text = %q", text)
			}
		})
	}
}

// SlurmUser reads a file that belongs to root or to it.
func TestOwners(t *testing.T) {
	for owner, ok := range map[uint32]bool{0: true, 64030: true, 6002: false} {
		if err := safe("key", 0o640, owner, 64030); (err == nil) != ok {
			t.Errorf("file of user %d: %v", owner, err)
		}
	}
}
