package machine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/guest"
)

// sshDir holds the job's keys. Root owns it: the user's home is the same in
// other jobs and on the nodes.
const sshDir = "run/slurm-v/ssh"

// maxSSHKeys bounds the keys that are let in. Each login by slurmv ssh brings one.
const maxSSHKeys = 256

// StartSSH starts the image's sshd for the job's owner, with the job's keys, on
// the VM network. One that runs already lets in the key beside the earlier ones,
// and keeps its own: nobody's connections are disturbed.
func (m *Machine) StartSSH(ctx context.Context, s guest.SSH) error {
	if err := checkSSH(s); err != nil {
		return err
	}
	sshd, err := m.findSSHD()
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.addSSHKey(s.AuthorizedKey)
	if m.sshRuns() {
		return m.writeSSHKeys()
	}
	if err := m.writeSSH(s); err != nil {
		return err
	}
	config := m.path(sshDir, "sshd_config")
	if err := m.command(ctx, "", sshd, "-t", "-f", config); err != nil {
		return err
	}
	// The image's own server may have the port.
	if err := m.command(ctx, "", "systemctl", "stop", "ssh.socket", "ssh.service", "sshd.socket", "sshd.service"); err != nil {
		m.log().Debug("image's sshd not stopped", "err", err)
	}
	return m.runSSHD(sshd, config)
}

func checkSSH(s guest.SSH) error {
	switch {
	case !validName(s.User):
		return fmt.Errorf("%.80q is not a user name", s.User)
	case s.AuthorizedKey == "" || strings.ContainsAny(s.AuthorizedKey, "\n\x00"):
		return errors.New("the authorized key is not one line")
	case len(s.Listen) == 0:
		return errors.New("no address to listen on")
	}
	for _, a := range s.Listen {
		if _, err := netip.ParseAddr(a); err != nil {
			return err
		}
	}
	return nil
}

func (m *Machine) findSSHD() (string, error) {
	for _, path := range []string{"/usr/sbin/sshd", "/usr/local/sbin/sshd"} {
		if _, err := os.Stat(m.path(path)); err == nil {
			return path, nil
		}
	}
	return "", errors.New("the image has no sshd: install openssh-server in it, or use the default launcher")
}

func (m *Machine) sshRuns() bool {
	select {
	case <-m.sshEnded:
		return false
	default:
		return m.sshEnded != nil
	}
}

// addSSHKey forgets the oldest key when there are too many.
func (m *Machine) addSSHKey(key string) {
	if slices.Contains(m.sshKeys, key) {
		return
	}
	m.sshKeys = append(m.sshKeys, key)
	if len(m.sshKeys) > maxSSHKeys {
		m.sshKeys = m.sshKeys[1:]
	}
}

func (m *Machine) writeSSHKeys() error {
	return writeFile(m.path(sshDir, "authorized_keys"), strings.Join(m.sshKeys, "\n")+"\n", 0o644)
}

// writeSSH writes keys and configuration.
func (m *Machine) writeSSH(s guest.SSH) error {
	// sshd wants its own empty directory, which some images make at boot only.
	for _, dir := range []string{sshDir, "run/sshd"} {
		if err := os.MkdirAll(m.path(dir), 0o755); err != nil {
			return err
		}
	}
	key := strings.TrimRight(s.HostKey, "\n") + "\n"
	if err := writeFile(m.path(sshDir, "host_key"), key, 0o600); err != nil {
		return err
	}
	if err := m.writeSSHKeys(); err != nil {
		return err
	}
	return writeFile(m.path(sshDir, "sshd_config"), sshdConfig(s, m.path(sshDir)), 0o600)
}

func sshdConfig(s guest.SSH, dir string) string {
	var b strings.Builder
	for _, a := range s.Listen {
		fmt.Fprintf(&b, "ListenAddress %s\n", a)
	}
	fmt.Fprintf(&b, `HostKey %[1]s/host_key
AuthorizedKeysFile %[1]s/authorized_keys
PidFile none
AllowUsers "%[2]s"
PermitRootLogin %[3]s
AuthenticationMethods publickey
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
X11Forwarding no
PrintMotd no
AcceptEnv LANG LC_* SLURM_* SLURMV_*
Subsystem sftp internal-sftp
`, dir, s.User, map[bool]string{true: "prohibit-password", false: "no"}[s.User == "root"])
	return b.String()
}

// runSSHD starts the server and gives it a moment to fail.
func (m *Machine) runSSHD(sshd, config string) error {
	done := make(chan struct{})
	if m.run != nil {
		err := m.run(context.Background(), "", sshd, "-D", "-e", "-f", config)
		if err == nil {
			m.sshEnded = done
		}
		return err
	}
	var said strings.Builder
	cmd := exec.Command(sshd, "-D", "-e", "-f", config)
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", sshd, err)
	}
	if err := guest.MakeOrdinary(cmd.Process.Pid); err != nil {
		m.log().Warn("programs started by SSH are not like others", "err", err)
	}
	var ended error
	go func() {
		ended = cmd.Wait()
		close(done)
	}()
	select {
	case <-done:
		return fmt.Errorf("start %s: %w: %s", sshd, ended, lastLine(said.String()))
	case <-time.After(300 * time.Millisecond):
	}
	m.sshEnded = done
	return nil
}
