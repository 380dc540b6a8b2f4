package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slurm-v/slurm-v/guest"
)

// sshDir has the job's keys. It is not in the user's home, because other jobs and the nodes
// share the home.
const sshDir = "run/slurm-v/ssh"

// maxSSHKeys bounds how many keys are accepted. Each login by slurmv ssh adds one.
const maxSSHKeys = 256

// StartSSH starts the image's sshd for the job's owner, with the job's keys, on the VM
// network. If it runs already, it goes on with its host key and also accepts the new key,
// so no connection is disturbed.
func (m *Machine) StartSSH(ctx context.Context, s guest.SSH) error {
	return m.server().start(ctx, s)
}

func (m *Machine) server() *sshServer {
	m.sshd.system = &m.system
	return &m.sshd
}

// An sshServer is the image's sshd, as it runs for the job.
type sshServer struct {
	*system

	mu    sync.Mutex
	ended chan struct{} // closed when the server has ended; nil before its start
	keys  []string      // that it accepts
}

func (v *sshServer) start(ctx context.Context, s guest.SSH) error {
	if err := checkSSH(s); err != nil {
		return err
	}
	sshd, err := v.find()
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.addKey(s.AuthorizedKey)
	if v.runs() {
		return v.writeKeys()
	}
	if err := v.write(s); err != nil {
		return err
	}
	config := v.path(sshDir, "sshd_config")
	if err := v.command(ctx, "", sshd, "-t", "-f", config); err != nil {
		return err
	}
	// The image's own server may have the port.
	if err := v.command(ctx, "", "systemctl", "stop", "ssh.socket", "ssh.service", "sshd.socket", "sshd.service"); err != nil {
		v.log().Debug("image's sshd not stopped", "err", err)
	}
	return v.launch(ctx, sshd, config, s.Listen)
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

func (v *sshServer) find() (string, error) {
	for _, path := range []string{"/usr/sbin/sshd", "/usr/local/sbin/sshd"} {
		if _, err := os.Stat(v.path(path)); err == nil {
			return path, nil
		}
	}
	return "", errors.New("the image has no sshd: install openssh-server in it, or use the default launcher")
}

func (v *sshServer) runs() bool {
	select {
	case <-v.ended:
		return false
	default:
		return v.ended != nil
	}
}

// addKey adds a key. If there are too many keys, it forgets the oldest.
func (v *sshServer) addKey(key string) {
	if slices.Contains(v.keys, key) {
		return
	}
	v.keys = append(v.keys, key)
	if len(v.keys) > maxSSHKeys {
		v.keys = v.keys[1:]
	}
}

func (v *sshServer) writeKeys() error {
	return writeFile(v.path(sshDir, "authorized_keys"), strings.Join(v.keys, "\n")+"\n", 0o644)
}

// write writes keys and configuration.
func (v *sshServer) write(s guest.SSH) error {
	// sshd wants its own empty directory, which some images make at boot only.
	for _, dir := range []string{sshDir, "run/sshd"} {
		if err := os.MkdirAll(v.path(dir), 0o755); err != nil {
			return err
		}
	}
	key := strings.TrimRight(s.HostKey, "\n") + "\n"
	if err := writeFile(v.path(sshDir, "host_key"), key, 0o600); err != nil {
		return err
	}
	if err := v.writeKeys(); err != nil {
		return err
	}
	return writeFile(v.path(sshDir, "sshd_config"), sshdConfig(s, v.path(sshDir)), 0o600)
}

// sshdConfig gives a login a quarter of an hour. By default sshd closes a connection that is not authenticated after
// two minutes, and a VM of a busy node has needed longer. It would also refuse some of more than ten at a time.
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
LoginGraceTime 900
MaxStartups 100
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

// launch starts the server and waits until it listens on its addresses.
func (v *sshServer) launch(ctx context.Context, sshd, config string, addresses []string) error {
	done := make(chan struct{})
	if v.run != nil {
		err := v.run(context.Background(), "", sshd, "-D", "-e", "-f", config)
		if err == nil {
			v.ended = done
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
		v.log().Warn("programs started by SSH are not like others", "err", err)
	}
	var ended error
	go func() {
		ended = cmd.Wait()
		close(done)
	}()
	v.ended = done
	for _, a := range addresses {
		err := awaitListener(ctx, net.JoinHostPort(a, "22"), done)
		if errors.Is(err, errEnded) {
			return fmt.Errorf("start %s: %w: %s", sshd, ended, lastLine(said.String()))
		}
		if err != nil {
			return fmt.Errorf("start %s: %w", sshd, err)
		}
	}
	return nil
}

var errEnded = errors.New("the server has ended")

// listenPatience is how long sshd may take until it listens. On a busy host it has taken
// seconds.
const listenPatience = 2 * time.Minute

// awaitListener returns when a connection to the address succeeds. The error is errEnded if the
// server ends before.
func awaitListener(ctx context.Context, address string, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, listenPatience)
	defer cancel()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ended:
			return errEnded
		case <-ctx.Done():
			return fmt.Errorf("it does not listen on %s: %w", address, err)
		case <-time.After(pause):
		}
	}
}
