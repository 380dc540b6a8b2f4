//go:build cluster

package test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

// However a job ends, its state is the right one, its output names the cause,
// and nothing of it is left. The last is checked by submit when a test ends.

func TestNormalEnd(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small+cold, "slurm-v-run -n 1 hostname")
	contains(t, j.completes(), "vm0\n")
}

func TestScriptFails(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small, "slurm-v-run -n 1 true; exit 7")
	j.ends("FAILED", "7:0")
}

// ends waits for the job to be in a state with an exit code.
func (j *job) ends(state, code string) string {
	j.t.Helper()
	j.await("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
	if s, c := j.state(), j.exitCode(); s != state || c != code && code != "" {
		j.t.Errorf("job %s is %s with exit code %s, want %s %s\n%s", j.id, s, c, state, code, j.output())
	}
	return j.output()
}

func TestCancelWhileQueued(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small+" --begin=now+1hour", "slurm-v-run hostname")
	j.await("PENDING")
	alice.must(t, "scancel "+j.id)
	j.ends("CANCELLED", "")
}

func TestCancelWhileLaunching(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small, "slurm-v-run sleep 1000")
	j.await("RUNNING")
	j.awaitOutput("image")
	alice.must(t, "scancel "+j.id)
	j.ends("CANCELLED", "")
}

func TestCancelWhileBooting(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small+cold, "slurm-v-run sleep 1000")
	j.awaitOutput("boot")
	alice.must(t, "scancel "+j.id)
	j.ends("CANCELLED", "")
}

func TestCancelWhileRunning(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small, "slurm-v-run sh -c 'echo running; sleep 1000'")
	j.awaitOutput("running")
	alice.must(t, "scancel "+j.id)
	j.ends("CANCELLED", "")
}

func TestProgramIgnoresTERM(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small, `slurm-v-run bash -c 'trap "" TERM; echo running; sleep 1000'`)
	j.awaitOutput("running")
	alice.must(t, "scancel "+j.id)
	j.ends("CANCELLED", "")
}

func TestTimeLimit(t *testing.T) {
	t.Parallel()
	const script = `slurm-v-run bash -c 'trap "echo saved > saved; exit 0" TERM; echo running; ` + rest + `'`
	j := alice.submit(t, small, script)
	j.awaitOutput("running")
	root.must(t, "scontrol update jobid="+j.id+" timelimit=1")
	j.ends("TIMEOUT", "")
	if got := j.file("saved"); got != "saved" {
		t.Errorf("a program that traps TERM at the time limit wrote %q", got)
	}
}

func TestBatchScriptKilled(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small, "slurm-v-run --start; slurm-v-run echo up; kill -9 $$; sleep 100")
	j.ends("FAILED", "0:9")
}

func TestSrunKilled(t *testing.T) {
	t.Parallel()
	const script = `
slurm-v-run sh -c 'echo running; setsid sleep 1234 & sleep 1234' &
run=$!
until grep -q running out; do sleep 0.3; done
echo "before: $(slurm-v-run -Q sh -c 'pgrep -x sleep | wc -l')"
kill -9 $run # slurm-v-run has become its srun
wait $run
echo "srun killed: $?"
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	left=$(slurm-v-run -Q sh -c 'pgrep -x sleep | wc -l')
	[ "$left" = 0 ] && break
	sleep 1
done
echo "left: $left"
`
	j := alice.submit(t, small, script)
	contains(t, j.completes(), "before: 2\n", "left: 0\n")
}

func TestVMPowersItselfOff(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small, "slurm-v-run sh -c 'echo running; sleep 1000'")
	j.awaitOutput("running")
	powerOff(t, j, "vm0")
	out := j.ends("FAILED", "")
	contains(t, out, "vm0 powered itself off, and the program in it is lost")
}

// powerOff presses the power button of a VM, as only root of the node can.
func powerOff(t *testing.T, j *job, vm string) {
	t.Helper()
	j.signalVM("TERM", vm)
}

// signalVM sends a signal to the QEMU of a VM on the job's first node. nova's is outside of the job's cgroup, and does not
// have the VM's name on its command line.
func (j *job) signalVM(signal, vm string) {
	j.t.Helper()
	if !inOpenStack() {
		j.signal(signal, "guest=slurmv-.*-"+vm+",")
		return
	}
	node := j.firstNode()
	pid := j.novaVMs(node)[vm]
	if pid == "" {
		j.t.Fatalf("nova runs no %s of job %s on %s", vm, j.id, node)
	}
	root.must(j.t, "kill -"+signal+" "+pid, "--node", node)
}

// firstNode is the one on which the job's script runs.
func (j *job) firstNode() string {
	j.t.Helper()
	return field(j.user.must(j.t, "scontrol show job "+j.id), "BatchHost")
}

// signal sends a signal to those processes of the job on its first node whose command
// line has a pattern. Other clusters of the machine can have a job of that number.
func (j *job) signal(signal, pattern string) {
	j.t.Helper()
	if o := j.signalled(signal, pattern); o.code != 0 {
		j.t.Fatalf("send SIG%s to %s of job %s: %+v", signal, pattern, j.id, o)
	}
}

// signalled is signal for processes that need not be there.
func (j *job) signalled(signal, pattern string) outcome {
	j.t.Helper()
	return root.run(j.t, fmt.Sprintf(`
for p in $(pgrep -f '%s'); do
	if [[ /proc/$p/ns/net -ef /proc/self/ns/net ]] && grep -q /job_%s/ /proc/$p/cgroup; then found+=" $p"; fi
done
kill -%s $found`, pattern, j.id, signal), "--node", j.firstNode())
}

func TestGuestNeverBoots(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small+" --vm-ready-timeout=10 --vm-image="+emptyImage(t), "slurm-v-run hostname")
	contains(t, j.ends("FAILED", "1:0"), "--vm-ready-timeout")
}

// A kernel that panics stands still. The job does not wait for its guest agent, as it does for a guest that is slow.
func TestAKernelThatPanicsEndsTheStart(t *testing.T) {
	t.Parallel()
	image := panickingImage(t)
	for start, vm := range map[string]string{"cold": "vm0: ", "warm": "make a template: "} {
		t.Run(start, func(t *testing.T) {
			j := alice.submit(t, small+" --vm-start="+start+" --vm-image="+image, "slurm-v-run hostname")
			contains(t, j.ends("FAILED", "1:0"), vm+`the VM stopped with a kernel panic: "VFS: Unable to mount root fs"`, "slurmv logs "+j.id)
		})
	}
}

// panickingImage returns the path of an image of alice's whose boot sector writes to the serial port what Linux writes
// when it panics, and then stands still.
func panickingImage(t *testing.T) string {
	t.Helper()
	const code = "\xfa\xfc" + // cli; cld
		"\x31\xc0\x8e\xd8" + // xor ax, ax; mov ds, ax
		"\xbe\x17\x7c" + // mov si, the message behind the code
		"\xba\xf8\x03" + // mov dx, 0x3f8
		"\xac\x84\xc0\x74\x03" + // next: lodsb; test al, al; jz stand
		"\xee\xeb\xf8" + // out dx, al; jmp next
		"\xf4\xeb\xfd" // stand: hlt; jmp stand
	sector := make([]byte, 512)
	copy(sector, code+"[    1.000000] Kernel panic - not syncing: VFS: Unable to mount root fs\r\n\x00")
	copy(sector[510:], "\x55\xaa")
	return alice.must(t, "f=$(mktemp ~/panics-XXXXXX.qcow2) && echo "+base64.StdEncoding.EncodeToString(sector)+" | base64 -d > $f.raw && truncate -s 1M $f.raw && "+
		"qemu-img convert -f raw -O qcow2 $f.raw $f && rm $f.raw && echo $f")
}

// emptyImage returns the path of an image of alice's that no VM boots from.
func emptyImage(t *testing.T) string {
	t.Helper()
	return alice.must(t, "f=$(mktemp ~/empty-XXXXXX.qcow2) && qemu-img create -q -f qcow2 $f 1G && echo $f")
}

func TestBadImages(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ make, want string }{
		"does not exist":        {"true", "does not exist"},
		"cannot be read":        {"qemu-img create -q -f qcow2 disk.qcow2 1G && chmod 000 disk.qcow2", "is not readable by user alice"},
		"is not an image":       {"echo this is a text > disk.qcow2", "is not a disk image"},
		"is based on elsewhere": {"qemu-img create -q -f qcow2 -F raw -b /etc/shadow -u disk.qcow2 1G", "/etc/shadow"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := alice.must(t, "mktemp -d ~/image-XXXXXX")
			alice.must(t, "cd "+dir+" && "+tt.make)
			j := alice.submit(t, small+" --vm-image="+dir+"/disk.qcow2", "slurm-v-run hostname")
			contains(t, j.ends("FAILED", "1:0"), tt.want, dir+"/disk.qcow2")
			alice.must(t, "rm -rf "+dir)
		})
	}
}

// Random operations on the working directory are right in a VM, and a VM that is killed among
// them leaves nothing on its node.
func TestVMKilledWhileItWrites(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small, `
until [ -e fsstress ]; do sleep 0.2; done
slurm-v-run -Q ./fsstress -operations 500 some
slurm-v-run -Q ./fsstress -operations 1000000000 many`)
	output(t, "env", "CGO_ENABLED=0", "go", "build", "-o", j.dir+"/fsstress.new", "./fsstress")
	root.must(t, "mv "+j.dir+"/fsstress.new "+j.dir+"/fsstress")
	j.awaitOutput("500 operations by 4 workers, all right")
	j.eventually("writes", func() bool { return len(strings.Fields(alice.run(t, "ls "+j.dir+"/many/worker*").stdout)) > 20 })
	j.signalVM("KILL", "vm0")
	contains(t, j.ends("FAILED", ""), "vm0", "lost")
}
