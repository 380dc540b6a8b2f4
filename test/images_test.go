//go:build cluster

package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A directory can be mounted elsewhere, and read-only; the job's own is at its
// place, and a disk as large as asked for.
func TestMountsAndDiskSize(t *testing.T) {
	t.Parallel()
	data := alice.must(t, "d=$(mktemp -d ~/data-XXXXXX) && echo input > $d/file && echo $d")
	defer alice.run(t, "rm -rf "+data)
	j := alice.submit(t, small+" --disk-size=3G --vm-mount="+data+":/mnt/data:ro", `
slurm-v-run -Q sh -c 'cat /mnt/data/file; 
for dir in /mnt/data .; do touch $dir/new 2>/dev/null && echo "writable: $dir"; done
echo result > result; echo disk $(df -BM --output=size / | tail -1)'`)
	out := j.completes()
	contains(t, out, "input", "writable: .\n")
	if strings.Contains(out, "writable: /mnt/data") {
		t.Error("a read-only mount can be written to")
	}
	if got := j.file("result"); got != "result" {
		t.Errorf("the job's directory holds %q", got)
	}
	checkDisk(t, out)
}

// checkDisk checks that a root file system has grown to a disk of 3G. It has a little less than that.
func checkDisk(t *testing.T, out string) {
	t.Helper()
	if size := regexp.MustCompile(`(?m)^disk (\d+)M$`).FindStringSubmatch(out); size == nil || len(size[1]) != 4 || size[1] < "2700" || size[1] > "3072" {
		t.Errorf("the root file system is not of 3G:\n%s", out)
	}
}

// An image whose kernel has no FUSE gets its directories by 9p.
func TestDirectoriesBy9p(t *testing.T) {
	t.Parallel()
	rule := filepath.Join(t.TempDir(), "rule")
	if err := os.WriteFile(rule, []byte("install fuse /bin/false\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	image := changedImage(t, "write "+rule+" /etc/modprobe.d/no-fuse.conf")
	// For kernels in which it is no module. The first partition has the boot loader; see
	// scripts/guest-image.d/base.
	output(t, "sh", "-c", "mtype -i "+image+"@@1M ::syslinux.cfg | sed 's/^APPEND .*/& initcall_blacklist=fuse_init/' > "+rule+" && mcopy -o -i "+image+"@@1M "+rule+" ::syslinux.cfg")
	j := alice.submit(t, small+" --vm-image="+image, `
slurm-v-run -Q sh -c 'grep " $PWD " /proc/mounts; echo from the VM > result'`)
	contains(t, j.completes(), " "+j.dir+" 9p ")
	if got := j.file("result"); got != "from the VM" {
		t.Errorf("the job's directory holds %q", got)
	}
	contains(t, alice.submit(t, small, `slurm-v-run -Q grep " $PWD " /proc/mounts`).completes(), " fuse.slurm-v ")
}

// An image that boots by UEFI only needs no option. The VM is restored, so UEFI's variables
// are in a template, too; OpenStack has none.
func TestImageByUEFI(t *testing.T) {
	t.Parallel()
	guest := root.must(t, "realpath $(dirname $(command -v slurm-v-run))/../libexec/slurm-v/slurmv-guest")
	image := output(t, "../scripts/guest-image", "--uefi", "--guest", guest)
	defer dropTemplates(t, image, "n1")
	start := " --vm-start=warm"
	if inOpenStack() {
		start = ""
	}
	j := alice.submit(t, small+start+" --nodelist=n1 --ivshmem=1 --vm-image="+image, `
slurm-v-run -Q sh -c 'ls -d /sys/firmware/efi; test -w /dev/slurmv/ivshmem0 && echo shared; echo from the VM > result'`)
	contains(t, j.completes(), "/sys/firmware/efi\n", "shared\n")
	if got := j.file("result"); got != "from the VM" {
		t.Errorf("the job's directory holds %q", got)
	}
}

// On a network of the site the addresses come from the site's DHCP server.
func TestSiteNetwork(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, "--nodes=2 --vm-per-node=1 --memory-per-vm=384M --time=90 --vm-network=site", `
slurm-v-run -n 2 -Q sh -c 'ip -4 -o addr show scope global; getent hosts vm0 vm1; ping -c 1 -w 30 vm0 >/dev/null && ping -c 1 -w 30 vm1 >/dev/null && echo both answer'`)
	out := j.completes()
	if n := strings.Count(out, "both answer"); n != 2 {
		t.Errorf("%d of 2 VMs reach both", n)
	}
	contains(t, out, "10.78.0.")
}

// listener answers at ports until its standard input ends.
const listener = `perl -MIO::Select -MIO::Socket::INET -e '
my @servers = map { IO::Socket::INET->new(LocalPort => $_, Listen => 9, ReuseAddr => 1) or die "port $_: $!" } 7001, 7010, 7011;
my $all = IO::Select->new(\*STDIN, @servers);
$| = 1;
print "listening\n";
for (;;) {
	for my $ready ($all->can_read) {
		exit if $ready == \*STDIN;
		my $client = $ready->accept;
		print $client "port ", $ready->sockport, " heard ", scalar <$client>;
	}
}'`

// A network of the job's own lets VMs out to where the site allows, and gives them the names
// that the node knows. A server listens at every port that the VM tries.
func TestTheWayOutOfTheNetwork(t *testing.T) {
	t.Parallel()
	alice.attack(t, "ctl", listener)
	j := alice.submit(t, small+" --vm-network=out", `
try() { exec 3<>/dev/tcp/$1/$2 && echo hello >&3 && cat <&3; }
for port in 7001 7010 7011; do try ctl $port | sed 's/^/node: /'; done
slurm-v-run -Q bash -c "$(declare -f try)"'
for port in 7001 7010 7011; do (try ctl $port) 2>&1; done | sed "s/^/VM: /"
getent hosts ctl
[ "$(ip route show default | wc -l)" = 1 ] && echo one way out'`)
	out := j.completes()
	contains(t, out, "node: port 7001 heard hello", "node: port 7010 heard hello", "node: port 7011 heard hello",
		"VM: port 7001 heard hello", "VM: port 7011 heard hello", "ctl/7010: Connection refused", "10.77.0.10", "one way out")
	none := alice.submit(t, small, `slurm-v-run -Q bash -c 'echo >/dev/tcp/10.77.0.10/7001' 2>&1; echo tried`)
	contains(t, none.completes(), "Network is unreachable", "tried")
}
