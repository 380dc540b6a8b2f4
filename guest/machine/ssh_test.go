package machine

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/guest"
)

var sshOfAlice = guest.SSH{User: "alice", AuthorizedKey: "ssh-ed25519 AAAA job", HostKey: "-----BEGIN\nkey", Listen: []string{"172.30.0.1"}}

func TestStartSSH(t *testing.T) {
	d := newDouble(t, map[string]string{"usr/sbin/sshd": ""})
	d.fail = map[string]error{"systemctl": errors.New("no systemd here")}
	if err := d.StartSSH(t.Context(), sshOfAlice); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"/usr/sbin/sshd -t -f /run/slurm-v/ssh/sshd_config",
		"systemctl stop ssh.socket ssh.service sshd.socket sshd.service",
		"/usr/sbin/sshd -D -e -f /run/slurm-v/ssh/sshd_config",
	}
	if diff := cmp.Diff(want, d.done); diff != "" {
		t.Errorf("what was done differs (-want +got):\n%s", diff)
	}
	if got := d.text(t, sshDir+"/host_key"); got != "-----BEGIN\nkey\n" {
		t.Errorf("host key = %q", got)
	}
	if info, err := os.Stat(d.path(sshDir, "host_key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("host key: %v, %v", info, err)
	}
	config := d.text(t, sshDir+"/sshd_config")
	for _, line := range []string{"ListenAddress 172.30.0.1\n", "AllowUsers \"alice\"\n", "PermitRootLogin no\n", "PasswordAuthentication no\n", "LoginGraceTime 900\n", "MaxStartups 100\n"} {
		if !strings.Contains(config, line) {
			t.Errorf("sshd_config lacks %q:\n%s", line, config)
		}
	}
}

// sshd reads its keys before it listens, which takes seconds on a busy host.
func TestStartSSHWaitsForTheListener(t *testing.T) {
	reserved, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := reserved.Addr().String()
	_ = reserved.Close()
	listens := make(chan struct{})
	time.AfterFunc(200*time.Millisecond, func() {
		close(listens)
		if l, err := net.Listen("tcp", address); err == nil {
			t.Cleanup(func() { _ = l.Close() })
		}
	})
	if err := awaitListener(t.Context(), address, nil); err != nil {
		t.Error(err)
	}
	select {
	case <-listens:
	default:
		t.Error("nobody listened yet")
	}
	ended := make(chan struct{})
	close(ended)
	if err := awaitListener(t.Context(), "127.0.0.1:1", ended); !errors.Is(err, errEnded) {
		t.Errorf("error of a server that has ended = %v", err)
	}
}

func TestASecondKeyLeavesTheServerAlone(t *testing.T) {
	d := newDouble(t, map[string]string{"usr/sbin/sshd": ""})
	second := sshOfAlice
	second.AuthorizedKey, second.HostKey = "ssh-ed25519 BBBB login", "another"
	for _, s := range []guest.SSH{sshOfAlice, second, second} {
		if err := d.StartSSH(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := d.text(t, sshDir+"/authorized_keys"), "ssh-ed25519 AAAA job\nssh-ed25519 BBBB login\n"; got != want {
		t.Errorf("keys = %q, want %q", got, want)
	}
	if got := d.text(t, sshDir+"/host_key"); got != "-----BEGIN\nkey\n" {
		t.Errorf("host key = %q", got)
	}
	starts := 0
	for _, line := range d.done {
		if strings.Contains(line, "sshd -D") {
			starts++
		}
	}
	if starts != 1 {
		t.Errorf("sshd was started %d times", starts)
	}
}

func TestSSHKeysAreBounded(t *testing.T) {
	m := &sshServer{}
	for i := range maxSSHKeys + 1 {
		m.addKey(fmt.Sprint("key ", i))
	}
	if len(m.keys) != maxSSHKeys || m.keys[0] != "key 1" {
		t.Errorf("%d keys, the first is %q", len(m.keys), m.keys[0])
	}
}

func TestStartSSHThatFails(t *testing.T) {
	tests := map[string]struct {
		files  map[string]string
		change func(*guest.SSH)
		fail   map[string]error
		want   string
	}{
		"no sshd":                 {want: "the image has no sshd"},
		"a configuration error":   {files: map[string]string{"usr/sbin/sshd": ""}, fail: map[string]error{"/usr/sbin/sshd": errors.New("bad option")}, want: "bad option"},
		"a key of two lines":      {change: func(s *guest.SSH) { s.AuthorizedKey = "a\nb" }, want: "not one line"},
		"no address":              {change: func(s *guest.SSH) { s.Listen = nil }, want: "no address to listen on"},
		"an address that is none": {change: func(s *guest.SSH) { s.Listen = []string{"0.0.0.0\nPermitRootLogin yes"} }, want: "unexpected character"},
		"a user with a quote":     {change: func(s *guest.SSH) { s.User = `a"b` }, want: "is not a user name"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			files := tt.files
			if files == nil {
				files = map[string]string{}
			}
			d := newDouble(t, files)
			d.fail = tt.fail
			s := sshOfAlice
			if tt.change != nil {
				tt.change(&s)
			}
			if err := d.StartSSH(t.Context(), s); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one that says %q", err, tt.want)
			}
		})
	}
}
