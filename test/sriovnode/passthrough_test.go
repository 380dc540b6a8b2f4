//go:build sriov

package sriovnode

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/jobspec"
)

// TestPassthrough gives a VF and shared memory to a VM by the agent, as Slurm's
// plugin starts it; the VM reaches another one in the same VLAN, on the other card. Then the agent is
// killed, and what it leaves is reclaimed.
func TestPassthrough(t *testing.T) { passThrough(t, config.StartCold, "") }

func passThrough(t *testing.T, start config.Start, says string) {
	t.Helper()
	install(t)
	l := newLab(t)
	l.keeps(t)
	spec := request()
	spec.Start = start
	a := l.launch(t, spec)
	peer := newStation(t, "the peer", vlanOfVM, l.acquire(t, claim(8, vlanOfVM, jobspec.VF{PF: "eth1"}))[0])
	if err := peer.inside(func() error { return addAddress(peer.link, "172.29.9.9/16") }); err != nil {
		t.Fatal(err)
	}
	a.awaitReady(t)

	text := fmt.Sprint(told(t, nodesPFs(t)[0].VFs[0]))
	if !strings.Contains(text, fmt.Sprint("vlan:", vlanOfVM)) || !strings.Contains(text, "max_tx:300") {
		t.Errorf("the VF is %s", text)
	}
	out := a.inVM(t, `
for d in /sys/bus/pci/devices/*; do echo PCI $(cat $d/vendor $d/device); done
readlink /dev/slurmv/ivshmem0
ping -c 3 -W 20 172.29.9.9`)
	// The machine's KVM is that of AMD, so shared memory is an NVDIMM.
	for _, want := range []string{"PCI 0x8086 0x10ca", "/dev/dax0.0\n", " bytes from 172.29.9.9"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if want := uint64(request().MemoryMiB<<20 + 1<<30 + 6<<20); mayLock(t) != want { // 4 MiB of shared memory, and its header
		t.Errorf("QEMU may lock %d bytes, want %d: the VM's own memory, 1 GiB and the shared memory", mayLock(t), want)
	}
	if log := a.logOfJob(t); !strings.Contains(log, says) {
		t.Errorf("the agent's log does not say %q:\n%s", says, log)
	}
	a.kill()
	a.reclaim(t)
}

// mayLock is how many bytes the only QEMU of the node may lock in memory.
func mayLock(t *testing.T) uint64 {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		if text, _ := os.ReadFile(line); !strings.Contains(string(text), "\x00-uuid\x00") {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(line)))
		var limit unix.Rlimit
		if err := unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, nil, &limit); err != nil {
			t.Fatal(err)
		}
		return limit.Cur
	}
	t.Fatal("no QEMU runs")
	return 0
}

// vlanOfVM is that of job 7 in the agent's configuration.
const vlanOfVM = 107

// install does on the node what the administrator does: the guest's program, the
// job's owner, and the account that libvirt looks up.
func install(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/usr/local/libexec/slurm-v/slurmv-guest"); err == nil {
		return
	}
	if os.Getenv("SRIOVNODE_IMAGE") == "" {
		t.Skip("no image for VMs: run `make sriov`")
	}
	run(t, "install", "-D", "-t", "/usr/local/libexec/slurm-v", filepath.Join(os.Getenv("SRIOVNODE_BUILD"), "slurmv-guest"))
	for file, text := range map[string]string{
		"/etc/passwd": "owner:x:4711:4711::/:/bin/sh\nlibvirt-qemu:x:64055:64055::/var/lib/libvirt:/usr/sbin/nologin\n",
		"/etc/group":  "owner:x:4711:\nlibvirt-qemu:x:64055:\n",
	} {
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
}

func addAddress(link netlink.Link, text string) error {
	address, err := netlink.ParseAddr(text)
	if err != nil {
		return err
	}
	return netlink.AddrAdd(link, address)
}

// An agent looks after the VMs of job 7.
type agent struct {
	program string
	config  string
	socket  string
	state   string
	log     string
	cmd     *exec.Cmd
	status  *os.File
	began   time.Time
}

// request is what the job asks for.
func request() jobspec.Spec {
	return jobspec.Spec{
		VMsPerNode: 1, VCPUs: 1, MemoryMiB: 320, Image: os.Getenv("SRIOVNODE_IMAGE"), Network: "default", WorkDir: "/tmp",
		ImageMode:    config.ImageDirect,
		SRIOV:        jobspec.SRIOV{VFs: []jobspec.VF{{PF: "eth0", MaxMbps: 300}}},
		IVShmem:      jobspec.IVShmem{Devices: 1, SizeMiB: 4},
		ReadyTimeout: 10 * time.Minute,
	}
}

// launch starts an agent as the plugin does: the job is in the environment, and
// descriptor 3 is for its words.
func (l lab) launch(t *testing.T, spec jobspec.Spec) *agent {
	t.Helper()
	dir, err := os.MkdirTemp("/run", "vf") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	a := &agent{
		program: filepath.Join(os.Getenv("SRIOVNODE_BUILD"), "slurmv-agent"), config: filepath.Join(dir, "slurmv.toml"), state: l.state,
		socket: nodeagent.SocketPath(filepath.Join(dir, "run"), 7, 0), log: filepath.Join(dir, "log"), began: time.Now(),
	}
	config := fmt.Sprintf("[paths]\nstate = %q\nrun = %q\n[vf]\nsubnet = \"172.29.0.0/16\"\n", l.state, filepath.Join(dir, "run"))
	if err := os.WriteFile(a.config, []byte(config+reserve(t, dir)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{dir, filepath.Dir(l.state)} { // QEMU, as the owner, passes through
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	log, err := os.Create(a.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	status, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	a.status = status
	a.cmd = exec.Command(a.program, "launch", "--config", a.config)
	a.cmd.ExtraFiles = []*os.File{theirs}
	a.cmd.Env = append(os.Environ(), "SLURMV_JOB=7", "SLURMV_RESTART=0", "SLURMV_STEP=0", "SLURMV_CLUSTER=lab", "SLURMV_JOB_NAME=vf",
		"SLURMV_NODE=n1", "SLURMV_NODE_RANK=0", "SLURMV_NODES=1", fmt.Sprint("SLURMV_UID=", account), fmt.Sprint("SLURMV_GID=", account),
		"SLURMV_CPUS=1", "SLURMV_MEM=1024", "SLURMV_SPEC="+spec.Encode())
	a.cmd.Stderr = log
	step := stepCgroup(t)
	defer step.Close()
	a.cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(step.Fd())}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.kill() })
	return a
}

// stepCgroup is the cgroup of step 0 of job 7, where Slurm would have put the agent: it
// starts nowhere else.
func stepCgroup(t *testing.T) *os.File {
	t.Helper()
	const path = "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0"
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// kill reports whether the agent was alive.
func (a *agent) kill() bool {
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait()
	return !a.cmd.ProcessState.Exited()
}

// reclaim gives back what the job holds; it may run any number of times.
func (a *agent) reclaim(t *testing.T) {
	t.Helper()
	for range 2 {
		run(t, a.program, "reclaim", "--config", a.config, "--node", "n1", "--job", "7", "--deadline", "1m")
	}
}

// awaitReady returns when the VM is up.
func (a *agent) awaitReady(t *testing.T) {
	t.Helper()
	for lines := bufio.NewScanner(a.status); lines.Scan(); {
		if lines.Text() == "ready" {
			t.Logf("the VM was up after %.0f s", time.Since(a.began).Seconds())
			return
		}
	}
	t.Fatalf("the agent ended:\n%s", a.said())
}

// logOfJob is what the agent has written into the job's own log.
func (a *agent) logOfJob(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(a.state, "jobs/7.0/agent.log"))
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

func (a *agent) said() string {
	text, err := os.ReadFile(a.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// inVM runs a shell's script in the VM and returns what it prints.
func (a *agent) inVM(t *testing.T, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	session := a.session(ctx, t)
	defer session.Close()
	p, err := session.Start(ctx, guest.Command{
		Args: []string{"sh", "-c", "exec 2>&1;" + script}, Dir: "/", UID: account, GID: account,
		Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(p.Stdout)
	if err != nil {
		t.Error(err)
	}
	if exit, err := p.Wait(); err != nil || exit.Code != 0 {
		t.Errorf("in the VM: %v, %v\n%s", exit, err, out)
	}
	return string(out)
}

// session tells the VM of all VMs, as the VM step does, and connects to it.
func (a *agent) session(ctx context.Context, t *testing.T) *guest.Session {
	t.Helper()
	holder, err := dial(ctx, t, a.socket).Hold(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { holder.Close() })
	if err := holder.SendMap(ctx, []nodeagent.NodeVMs{holder.Node}); err != nil {
		t.Fatal(err)
	}
	conn, _, err := dial(ctx, t, a.socket).Exec(ctx, nodeagent.Request{VM: 0})
	if err != nil {
		t.Fatal(err)
	}
	session, err := guest.NewSession(conn)
	if err != nil {
		t.Fatal(err)
	}
	return session
}

func dial(ctx context.Context, t *testing.T, socket string) *nodeagent.Client {
	t.Helper()
	client, err := nodeagent.Dial(ctx, socket)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
