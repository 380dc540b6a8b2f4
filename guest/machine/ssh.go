package machine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/guest"
)

// sshDir holds the job's keys. Root owns it: the user's home is the same in
// other jobs and on the nodes.
const sshDir = "run/slurm-v/ssh"

// StartSSH starts the image's sshd for the job's owner, with the job's keys, on
// the VM network.
func (m *Machine) StartSSH(ctx context.Context, s guest.SSH) error {
	if err := checkSSH(s); err != nil {
		return err
	}
	sshd, err := m.findSSHD()
	if err != nil {
		return err
	}
	if err := m.writeSSH(s); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sshd != nil {
		_ = m.sshd.Process.Kill()
		m.sshd = nil
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
	if err := writeFile(m.path(sshDir, "authorized_keys"), s.AuthorizedKey+"\n", 0o644); err != nil {
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
	if m.run != nil {
		return m.run(context.Background(), "", sshd, "-D", "-e", "-f", config)
	}
	var said strings.Builder
	cmd := exec.Command(sshd, "-D", "-e", "-f", config)
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", sshd, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return fmt.Errorf("start %s: %w: %s", sshd, err, lastLine(said.String()))
	case <-time.After(300 * time.Millisecond):
	}
	m.sshd = cmd
	return nil
}
