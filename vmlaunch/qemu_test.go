//go:build !noguests

package vmlaunch

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"libvirt.org/go/libvirtxml"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/internal/emulator"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/internal/play"
	"github.com/slurm-v/slurm-v/internal/process"
	"github.com/slurm-v/slurm-v/vmlaunch/hypervisor"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmlaunch/plan/plantest"
	"github.com/slurm-v/slurm-v/vmstep"
)

// A QEMU as libvirt starts it for a job is its owner and no more, other users do not reach
// its sockets, and its end is heard of by an agent that has given up its privileges. A launch
// that fails leaves nothing, although libvirt is still at work in its process.
func TestQEMUOfAJob(t *testing.T) {
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skipf("install QEMU and libvirt's driver for it: %v", err)
	}
	dir := play.OpenDir(t) // both parts have it, so libvirt examines QEMU only once
	checkPart(t, "giveup "+dir, [][2]string{{"started", "<nil>"}, {"given up", "<nil>"}, {"left", "[]"}})
	const no, yes = "permission denied", "1 kept"
	checkPart(t, "qemu "+dir, [][2]string{
		{"for another", "QEMU runs with uid 65533 65533 65533 65533 instead of 65534: libvirt ignored the domain's label"},
		{"for its owner", "<nil>"},
		{"groups", "65533 65535"},
		{"core", "Max core file size 0 0 bytes"},
		{"log", "appended to, below the state"},
		{"stranger at the channel", no}, {"stranger at the console", no}, {"stranger at the monitor", no},
		{"owner at the channel", no}, {"owner at the console", no}, {"owner at the monitor", no},
		{"root at the channel", yes}, {"root at the console", yes}, {"root at the monitor", yes},
		// And whatever mode libvirt gives them:
		{"stranger at the channel", no}, {"stranger at the console", no}, {"stranger at the monitor", no},
		{"owner at the channel", no}, {"owner at the console", no}, {"owner at the monitor", yes},
		// KILL, and NET_ADMIN until the addresses of the job's other nodes have come.
		{"agent's privileges", "CapInh 0000000000000000 CapPrm 0000000000001020 CapEff 0000000000001020 CapBnd 0000000000000000 CapAmb 0000000000000000 NoNewPrivs 1"},
		{"end", "failed: its QEMU process ended"},
	})
}

// libvirt asks nobody on the system bus to take over a VM: systemd-machined would move its QEMU
// out of the job. The mutant libvirt-finds-no-bus shows that it does ask if it can.
func TestQEMUStaysInTheJob(t *testing.T) {
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skipf("install QEMU and libvirt's driver for it: %v", err)
	}
	dir := play.OpenDir(t)
	calls := listenAsBus(t, filepath.Join(dir, "bus"))
	checkPart(t, "stays "+dir, [][2]string{{"started", "<nil>"}})
	if n := calls.Load(); n != 0 {
		t.Errorf("libvirt has called the system bus %d times", n)
	}
	conn, err := net.Dial("unix", filepath.Join(dir, "bus"))
	must(t, err)
	defer conn.Close()
	for calls.Load() == 0 { // a call is counted
		time.Sleep(time.Millisecond)
	}
}

// listenAsBus makes a socket the system bus of the parts, and counts the calls. It answers
// none: libvirt goes on without a bus then.
func listenAsBus(t *testing.T, socket string) *atomic.Int64 {
	t.Helper()
	bus, err := net.Listen("unix", socket)
	must(t, err)
	t.Cleanup(func() { bus.Close() })
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+socket)
	var calls atomic.Int64
	go func() {
		for {
			conn, err := bus.Accept()
			if err != nil {
				return
			}
			calls.Add(1)
			conn.Close()
		}
	}()
	return &calls
}

func playStays(t *testing.T, dir string) {
	v, d := vmsWithLibvirt(t, dir)
	fmt.Println("started:", v.startDomain(v.Machines[0], d))
	v.Machines[0].Domain.End()
}

// QEMU of a VM by UEFI reads and writes its variables as its owner, and libvirt forgets the VM
// when it ends: it does not forget one with variables unless it is told what to do with them.
func TestQEMUWithUEFI(t *testing.T) {
	if _, err := emulator.FindUEFI("/", config.QEMU{}); err != nil {
		t.Skipf("install ovmf: %v", err)
	}
	checkPart(t, "uefi "+play.OpenDir(t), [][2]string{{"started", "<nil>"}, {"open", "1"}, {"known", "1"}, {"ended", "<nil>"}, {"known", "0"}})
}

func playUEFI(t *testing.T, dir string) {
	unix.Umask(0o022)
	v, d := vmsWithLibvirt(t, dir)
	m := v.Machines[0]
	uefi, err := emulator.FindUEFI("/", v.Plan.QEMU)
	must(t, err)
	v.Plan.UEFI = uefi
	must(t, makeVars(v.Plan, m.Plan))
	d.OS = hypervisor.Describe(v.Plan, m.Plan, nil).OS
	m.Restoring() // its end is no loss
	fmt.Println("started:", v.startDomain(m, d))
	proc, err := m.Domain.Process()
	must(t, err)
	fmt.Println("open:", opens(t, proc, m.Plan.Vars))
	known := func() int {
		files, _ := filepath.Glob(filepath.Join(v.Plan.Run, "libvirt/etc/qemu", m.Plan.Domain+".xml"))
		return len(files)
	}
	fmt.Println("known:", known())
	fmt.Println("ended:", v.endDomain(m))
	fmt.Println("known:", known())
}

// A VM starts with the devices of RHEL's QEMU.
func TestQEMUOfRHEL(t *testing.T) {
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skipf("install QEMU and libvirt's driver for it: %v", err)
	}
	script, err := os.ReadFile("../scripts/cluster.d/rhel-qemu")
	must(t, err)
	dir := play.OpenDir(t)
	must(t, os.WriteFile(filepath.Join(dir, "rhel-qemu"), script, 0o755))
	checkPart(t, "rhel "+dir, [][2]string{{"started", "<nil>"}, {"ended", "<nil>"}, {"with IVShmem it starts", "false"}})
}

// playRHEL starts a VM, and one with a device that RHEL's QEMU does not have.
func playRHEL(t *testing.T, dir string) {
	v, d := vmsWithLibvirt(t, dir)
	m := v.Machines[0]
	d.Devices.Emulator = filepath.Join(dir, "rhel-qemu")
	m.Restoring() // its end is no loss
	fmt.Println("started:", v.startDomain(m, d))
	fmt.Println("ended:", v.endDomain(m))
	d.QEMUCommandline.Args = append(d.QEMUCommandline.Args, libvirtxml.DomainQEMUCommandlineArg{Value: "-device"}, libvirtxml.DomainQEMUCommandlineArg{Value: "ivshmem-doorbell"})
	fmt.Println("with IVShmem it starts:", v.startDomain(m, d) == nil)
}

// opens counts the descriptors of a process for the file at path.
func opens(t *testing.T, proc, path string) (count int) {
	t.Helper()
	links, err := filepath.Glob(filepath.Join(proc, "fd/*"))
	must(t, err)
	for _, link := range links {
		if to, _ := os.Readlink(link); to == path {
			count++
		}
	}
	return count
}

// libvirt, which is root, opens no file because a disk names it: the disk's owner can write to
// the disk. Without a description of what the disk is based on, libvirt does.
func TestQEMUOpensNoFileThatADiskNames(t *testing.T) {
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Skipf("install qemu-utils: %v", err)
	}
	dir := play.OpenDir(t)
	roots := filepath.Join(dir, "roots")
	must(t, os.Mkdir(roots, 0o755))
	device := filepath.Join(roots, "watchdog") // whoever opens a real one arms it
	must(t, unix.Mknod(device, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	must(t, err)
	defer unix.Close(watch)
	_, err = unix.InotifyAddWatch(watch, device, unix.IN_OPEN)
	must(t, err)
	opened := func() bool {
		n, err := unix.Read(watch, make([]byte, 4096))
		return err == nil && n > 0
	}
	checkPart(t, "undescribed "+dir, [][2]string{{"given up", "<nil>"}})
	if !opened() {
		t.Error("without a description libvirt does not open what the disk names, either: this test shows nothing")
	}
	checkPart(t, "described "+dir, [][2]string{{"started", "<nil>"}, {"given up", "<nil>"}})
	if opened() {
		t.Error("root has opened the device that the owner's disk names")
	}
}

func playDescribed(t *testing.T, dir string) { playDisk(t, dir, func(*libvirtxml.DomainDisk) {}) }

func playUndescribed(t *testing.T, dir string) {
	playDisk(t, dir, func(d *libvirtxml.DomainDisk) { d.BackingStore = nil })
}

// playDisk starts a VM whose owner has made the overlay name a device of root's, in place of
// the image.
func playDisk(t *testing.T, dir string, change func(*libvirtxml.DomainDisk)) {
	t.Helper()
	unix.Umask(0o022)
	v, d := vmsWithLibvirt(t, dir)
	m := v.Machines[0]
	image := images.Info{Layer: images.Layer{Path: filepath.Join(dir, "image"), Format: images.Raw}, VirtualBytes: 1 << 20}
	must(t, os.WriteFile(image.Path, make([]byte, image.VirtualBytes), 0o644))
	m.Plan.Base = image.Layers()
	image.Layer = images.Layer{Path: filepath.Join(dir, "roots", "watchdog"), Format: images.QCOW2}
	must(t, images.CreateOverlay(t.Context(), image, m.Plan.Overlay, 0, v.Plan.Owner))
	d.Devices.Disks = hypervisor.Describe(v.Plan, m.Plan, nil).Devices.Disks[:1]
	change(&d.Devices.Disks[0])
	fmt.Println("started:", v.startDomain(m, d))
	fmt.Println("given up:", v.giveUp(t.Context()))
}

// checkPart checks what a process with libvirt says. libvirt's own account may be missing
// here: the process can give it one in files of its own.
func checkPart(t *testing.T, part string, says [][2]string) {
	t.Helper()
	p := play.Start(t, part, &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS})
	for _, line := range says {
		if got := p.Says(line[0]); got != line[1] {
			t.Errorf("%s: %s; want %s", line[0], got, line[1])
		}
	}
}

func playGiveUp(t *testing.T, dir string) {
	v, d := vmsWithLibvirt(t, dir)
	m := v.Machines[0]
	fmt.Println("started:", v.startDomain(m, d))
	fmt.Println("given up:", v.giveUp(t.Context()))
	for m.StopReason() == "" { // libvirt tells of a VM's end after all else
		time.Sleep(time.Millisecond)
	}
	left, _ := filepath.Glob(v.Plan.Run)
	fmt.Println("left:", left)
}

func playQEMU(t *testing.T, dir string) {
	unix.Umask(0o022)
	v, d := vmsWithLibvirt(t, dir)
	m := v.Machines[0]

	v.Plan.Owner.UID = play.Stranger
	m.Restoring()
	fmt.Println("for another:", v.startDomain(m, d))
	must(t, v.endDomain(m))
	for m.StopReason() == "" {
		time.Sleep(time.Millisecond)
	}
	_ = m.Restored()
	v.Plan.Owner.UID = play.Owner
	fmt.Println("for its owner:", v.startDomain(m, d))

	defer m.Domain.End()
	proc, err := m.Domain.Process()
	must(t, err)
	status, err := os.ReadFile(filepath.Join(proc, "status"))
	must(t, err)
	fmt.Println("groups:", strings.Join(process.ParseStatus(string(status))["Groups"], " "))
	limits, err := os.ReadFile(filepath.Join(proc, "limits"))
	must(t, err)
	for line := range strings.Lines(string(limits)) {
		if strings.Contains(line, "core") {
			fmt.Println("core:", strings.Join(strings.Fields(line), " "))
		}
	}
	fmt.Println("log:", whereLog(t, v, proc))
	knock(t, v, m)
	watchEnd(t, v, proc)
}

// A VM that is promised huge pages has them when QEMU has started, and the kernel counts them
// from then on.
func TestQEMUOfHugePages(t *testing.T) {
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skipf("install QEMU and libvirt's driver for it: %v", err)
	}
	if free := freePages(); free < 32 {
		t.Skipf("needs 32 free huge pages of 2M, and %d are: sysctl vm.nr_hugepages=32", free)
	}
	checkPart(t, "pages "+play.OpenDir(t), [][2]string{
		{"claimed", "<nil>"}, {"promised", "32"}, {"started", "<nil>"}, {"taken", "32"},
		{"promised", "0"}, {"in huge pages", "65536 kB"}, {"ended", "<nil>"}, {"taken", "0"},
	})
}

// freePages is how many huge pages of 2M this machine has free.
func freePages() int {
	text, _ := os.ReadFile("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}

func playPages(t *testing.T, dir string) {
	v, _ := vmsWithLibvirt(t, dir)
	before := freePages()
	taken := func() { fmt.Println("taken:", before-freePages()) }
	v.Plan.PageSizes, v.Plan.Job.Spec.HugePages = []uint{2048}, config.HugePages2M
	v.Plan.Hardware.Memory, v.Plan.VMs[0].Pinning = []int{0}, plan.Pinning{Cells: []plan.Cell{{NUMA: 0, CPUs: []int{0}}}, Emulator: []int{0}}
	p, err := v.store.claimPages(t.Context(), v.journal, v.Plan)
	fmt.Println("claimed:", err)
	sayPromised(t, v)
	d := hypervisor.Describe(p, p.VMs[0], nil)
	d.Devices.Disks, d.Devices.Interfaces = nil, nil
	m := v.Machines[0]
	fmt.Println("started:", v.startDomain(m, d))
	taken()
	sayPromised(t, v)
	proc, err := m.Domain.Process()
	must(t, err)
	smaps, err := os.ReadFile(filepath.Join(proc, "smaps_rollup"))
	must(t, err)
	of := process.ParseStatus(string(smaps))
	// The mapping is shared, but the kernel calls what one process has private.
	fmt.Println("in huge pages:", strings.Join(of["Private_Hugetlb"], " "))
	fmt.Println("ended:", v.giveUp(t.Context()))
	taken()
}

func sayPromised(t *testing.T, v *VMs) {
	t.Helper()
	states, err := journalsOfThisBoot(v.store.state)
	must(t, err)
	open, taking := promised(states)
	fmt.Println("promised:", sum(append(open, taking...)))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// addAccounts gives this mount namespace the accounts of libvirt and of the job's owner.
func addAccounts(t *testing.T, dir string) {
	t.Helper()
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	for file, more := range map[string]string{
		"passwd": "libvirt-qemu:x:64055:64055::/:/bin/false\nqemu:x:64056:64056::/:/bin/false\nplayer:x:65533:65533::/:/bin/false\n",
		"group":  "libvirt-qemu:x:64055:\nqemu:x:64056:\nkvm:x:64057:\nplayer:x:65533:\nmore:x:65535:player\n",
	} {
		text, err := os.ReadFile("/etc/" + file)
		must(t, err)
		own := filepath.Join(dir, file)
		must(t, os.WriteFile(own, append(text, more...), 0o644))
		must(t, unix.Mount(own, "/etc/"+file, "", unix.MS_BIND, ""))
	}
}

// vmsWithLibvirt goes as far as a launch before it starts VMs. It describes the first VM.
func vmsWithLibvirt(t *testing.T, dir string) (*VMs, *libvirtxml.Domain) {
	t.Helper()
	addAccounts(t, dir)
	job := plantest.Job()
	job.Spec.VMsPerNode, job.Spec.VCPUs, job.Spec.MemoryMiB, job.Spec.Mounts = 1, 1, 64, nil
	account, err := owner.Lookup(play.Owner, play.Owner)
	must(t, err)
	cfg := config.Default()
	cfg.Paths = config.Paths{State: filepath.Join(dir, "state"), Run: filepath.Join(dir, "run")}
	p, err := plan.New(cfg, job, account, plan.Hardware{Accel: config.AccelTCG, NUMA: -1})
	must(t, err)
	s := openStore(cfg, job.Node)
	j, err := s.openJournal(t.Context(), job)
	must(t, err)
	v := newVMs(s, p, Slurmctld{}, j, machine.StartStopwatch(time.Time{}), func(vmstep.Progress) {})
	must(t, v.makeDirs())
	must(t, v.backend.open(t.Context()))
	d := hypervisor.Describe(p, p.VMs[0], nil)
	d.Devices.Disks, d.Devices.Interfaces = nil, nil
	return v, d
}

// whereLog says where QEMU's standard error goes.
func whereLog(t *testing.T, v *VMs, proc string) string {
	t.Helper()
	path, err := os.Readlink(filepath.Join(proc, "fd/2"))
	must(t, err)
	info, err := os.ReadFile(filepath.Join(proc, "fdinfo/2"))
	must(t, err)
	flags, _ := strconv.ParseInt(process.ParseStatus(string(info))["flags"][0], 8, 64)
	if flags&unix.O_APPEND != 0 && strings.HasPrefix(path, v.Plan.State+"/") {
		return "appended to, below the state"
	}
	return fmt.Sprintf("%s, flags %o", path, flags)
}

// knock has users connect to what libvirt has bound.
func knock(t *testing.T, v *VMs, m *machine.Machine) {
	t.Helper()
	monitors, err := filepath.Glob(filepath.Join(v.Plan.Run, "libvirt/lib/qemu/domain-*/monitor.sock"))
	must(t, err)
	if len(monitors) != 1 {
		t.Fatalf("libvirt has %d monitors", len(monitors))
	}
	sockets := [][2]string{{"channel", m.Plan.Channel}, {"console", m.Plan.Console}, {"monitor", monitors[0]}}
	knockAs(t, sockets, "stranger", play.Stranger)
	knockAs(t, sockets, "owner", play.Owner)
	knockAs(t, sockets, "root", 0)
	for _, s := range sockets {
		must(t, os.Chmod(s[1], 0o777))
	}
	knockAs(t, sockets, "stranger", play.Stranger)
	knockAs(t, sockets, "owner", play.Owner)
}

func knockAs(t *testing.T, sockets [][2]string, who string, uid uint32) {
	t.Helper()
	for _, s := range sockets {
		p := play.Start(t, "knock "+s[1], play.As(uid))
		words := strings.Split(p.Says("knock"), ": ")
		fmt.Printf("%s at the %s: %s\n", who, s[0], words[len(words)-1])
	}
}

// watchEnd serves, for which the agent gives up privileges, and has the owner kill QEMU.
func watchEnd(t *testing.T, v *VMs, proc string) {
	t.Helper()
	owner := exec.Command("sh", "-c", "read go; kill -KILL "+filepath.Base(proc))
	owner.SysProcAttr = play.As(play.Owner)
	in, err := owner.StdinPipe()
	must(t, err)
	must(t, owner.Start())
	served, ready := make(chan error, 1), make(chan struct{})
	serving, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { served <- v.Serve(serving, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-served:
		t.Fatal(err)
	}
	fmt.Println("agent's privileges:", play.Privileges(t, "/proc/self/task/*/status"))
	fmt.Fprintln(in, "go")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	select {
	case <-v.Gone():
		fmt.Println("end:", v.Machines[0].StopReason())
	case <-ctx.Done():
		fmt.Println("end: nothing is heard of it")
	}
}

// The modes of the run directories, which decide which users can pass through them.
func TestRunDirectories(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("run as root: directories get a group")
	}
	p := plan.Plan{Run: filepath.Join(t.TempDir(), "run")}
	p.Owner.GID = play.Owner
	must(t, makeRunDirs(p))
	for dir, want := range map[string]string{
		".": "drwx--x--x 0", "ports": "drwx------ 0", "libvirt": "drwx--x--- 65533",
	} {
		info, err := os.Stat(filepath.Join(p.Run, dir))
		must(t, err)
		if got := fmt.Sprint(info.Mode(), groupOf(info)); got != want {
			t.Errorf("%s is %s, want %s", dir, got, want)
		}
	}
}

func playKnock(_ *testing.T, socket string) { fmt.Println("knock:", play.Hold(socket, 1)) }

// TestPlay is a process of [play.Start].
func TestPlay(t *testing.T) {
	play.Main(t, map[string]func(*testing.T, string){
		"qemu": playQEMU, "uefi": playUEFI, "giveup": playGiveUp, "stays": playStays, "pages": playPages, "rhel": playRHEL, "knock": playKnock,
		"links": playLinks, "described": playDescribed, "undescribed": playUndescribed,
	})
}
