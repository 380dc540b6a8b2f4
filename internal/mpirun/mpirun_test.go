package mpirun

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

var twoNodes = []nodeagent.NodeVMs{
	{Node: "n1", HostKey: "ssh-ed25519 AAA1", VMs: []nodeagent.VM{{Name: "vm0", Address: "172.30.0.1"}, {Name: "vm1", Address: "172.30.0.2"}}},
	{Node: "n2", Rank: 1, HostKey: "ssh-ed25519 AAA2", VMs: []nodeagent.VM{{Name: "vm2", Address: "172.30.0.3"}}},
}

// sh runs a script as a VM's shell does. path is its PATH, with or without ssh.
func sh(t *testing.T, path, script string) (out string, err error) {
	t.Helper()
	c := exec.Command("/bin/sh")
	c.Env = []string{"PATH=" + path + ":/usr/bin:/bin"}
	c.Stdin = strings.NewReader(script)
	text, err := c.CombinedOutput()
	return string(text), err
}

// withSSH makes a directory with an ssh that prints its arguments.
func withSSH(t *testing.T) string {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/ssh", []byte("#!/bin/sh\nfor a; do echo \"$a\"; done\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestScriptWritesTheFiles(t *testing.T) {
	files := Files{Dir: filepath.Join(t.TempDir(), "d"), Key: "-----BEGIN\n$(reboot) `reboot`\n", Nodes: twoNodes, Slots: 2}
	bin := withSSH(t)
	for range 2 { // the second run overwrites the first
		if out, err := sh(t, bin, files.Script()); err != nil || out != Done+"\n" {
			t.Fatalf("%q, %v", out, err)
		}
	}
	want := map[string]string{
		"key":         "-----BEGIN\n$(reboot) `reboot`\n",
		"known_hosts": "vm0,172.30.0.1 ssh-ed25519 AAA1\nvm1,172.30.0.2 ssh-ed25519 AAA1\nvm2,172.30.0.3 ssh-ed25519 AAA2\n",
		"hostfile":    "vm0\nvm0\nvm1\nvm1\nvm2\nvm2\n",
		"ssh":         "#!/bin/sh\nexec " + bin + "/ssh -F " + files.Dir + "/config \"$@\"\n",
		"config":      files.config(),
	}
	got := map[string]string{}
	entries, _ := os.ReadDir(files.Dir)
	for _, e := range entries {
		text, _ := os.ReadFile(filepath.Join(files.Dir, e.Name()))
		got[e.Name()] = string(text)
		if info, err := e.Info(); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is open to others: %v, %v", e.Name(), info.Mode(), err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files differ (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(files.Dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v, %v", info, err)
	}
	out, err := exec.Command(files.Dir+"/ssh", "vm1", "echo  two   spaces").CombinedOutput()
	if want := "-F\n" + files.Dir + "/config\nvm1\necho  two   spaces\n"; err != nil || string(out) != want {
		t.Errorf("ssh gets %q, want %q (%v)", out, want, err)
	}
}

func TestPreparedSaysWhatIsThere(t *testing.T) {
	files := Files{Dir: filepath.Join(t.TempDir(), "d"), Key: "k", Nodes: twoNodes}
	prepared := func() string {
		words := Prepared(files.Dir)
		out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if got := prepared(); got != "" {
		t.Errorf("before: %q", got)
	}
	if out, err := sh(t, withSSH(t), files.Script()); err != nil {
		t.Fatalf("%q, %v", out, err)
	}
	if got := prepared(); got != Done+"\n" {
		t.Errorf("afterwards: %q", got)
	}
}

func TestADirectoryThatCannotBeMadeIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := sh(t, withSSH(t), Files{Dir: file, Key: "k"}.Script())
	if err == nil || !strings.Contains(out, "make "+file+" in the VM: ") || strings.Contains(out, Done) {
		t.Errorf("%q, %v", out, err)
	}
}

// openSSH runs OpenSSH's client with the configuration of an mpirun.
func openSSH(t *testing.T, args ...string) (said string, err error) {
	t.Helper()
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skip("ssh is not installed: apt-get install openssh-client")
	}
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(Files{Dir: "/tmp/d"}.config()), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "ssh", append([]string{"-F", file}, args...)...).CombinedOutput()
	return string(out), err
}

func TestOpenSSHTakesTheConfiguration(t *testing.T) {
	out, err := openSSH(t, "-G", "vm1")
	if err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	for _, line := range []string{"identityfile /tmp/d/key\n", "batchmode yes\n", "stricthostkeychecking true\n", "userknownhostsfile /tmp/d/known_hosts\n"} {
		if !strings.Contains(out, line) {
			t.Errorf("ssh does not know %q:\n%s", line, out)
		}
	}
}

func TestEnv(t *testing.T) {
	tests := map[string]struct {
		in        []string
		have, not []string
	}{
		"points to the files": {nil, []string{"SLURMV_HOSTFILE=/d/hostfile", "HYDRA_HOST_FILE=/d/hostfile", "HYDRA_LAUNCHER_EXEC=/d/ssh"}, nil},
		"hides Slurm": {[]string{"SLURM_JOB_ID=7", "SLURM_NODELIST=n1", "SLURMD_NODENAME=n1", "PMI_RANK=0", "PMIX_RANK=0", "A=b"},
			[]string{"A=b"}, []string{"SLURM_JOB_ID", "SLURM_NODELIST", "SLURMD_NODENAME", "PMI_RANK", "PMIX_RANK"}},
		"leaves out what is true in one VM only": {[]string{"HOSTNAME=vm0", "SLURMV_VM=vm0"}, nil, []string{"HOSTNAME", "SLURMV_VM"}},
		"starts no ranks by srun": {[]string{"I_MPI_HYDRA_BOOTSTRAP=slurm", "HYDRA_LAUNCHER_EXTRA_ARGS=--external-launcher"},
			[]string{"I_MPI_HYDRA_BOOTSTRAP=ssh"}, []string{"HYDRA_LAUNCHER_EXTRA_ARGS"}},
		"leaves the user's choice": {[]string{"HYDRA_LAUNCHER=fork"}, []string{"HYDRA_LAUNCHER=fork"}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for _, entry := range Env(tt.in, "/d") {
				name, _, _ := strings.Cut(entry, "=")
				if _, twice := got[name]; twice {
					t.Errorf("%s is there twice", name)
				}
				got[name] = entry
			}
			for _, entry := range tt.have {
				if name, _, _ := strings.Cut(entry, "="); got[name] != entry {
					t.Errorf("%s = %q, want %q", name, got[name], entry)
				}
			}
			for _, name := range tt.not {
				if got[name] != "" {
					t.Errorf("%s is there", got[name])
				}
			}
		})
	}
}

// A VM that closes the connection, as an overloaded sshd does, must not look as if the command had printed nothing.
func TestALostConnectionIsSaid(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_, _ = conn.Write([]byte("SSH-2.0-OpenSSH_9.2\r\n"))
			_ = conn.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	out, err := openSSH(t, "-p", port, "127.0.0.1", "true")
	if err == nil || !strings.Contains(out, "127.0.0.1 port "+port) {
		t.Errorf("ssh says %q, %v", out, err)
	}
}
