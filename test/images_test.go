//go:build cluster

package test

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

// Any image with cloud-init will do: slurmv-guest comes in by the seed disk, and
// so does what the user has for cloud-init.
func TestImageWithCloudInit(t *testing.T) {
	t.Parallel()
	c := exec.Command("../scripts/guest-image", "--cloud-init")
	var words bytes.Buffer
	c.Stderr = &words
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, words.Bytes())
	}
	image := strings.TrimSpace(string(out))
	dir := alice.must(t, "mktemp -d ~/cloud-XXXXXX")
	defer alice.run(t, "rm -rf "+dir)
	alice.writeFile(t, dir+"/user-data", "#cloud-config\nwrite_files:\n- path: /etc/from-user-data\n  content: words of the user\n")
	j := alice.submit(t, "--nodes=1 --vm-per-node=1 --memory-per-vm=640M --time=10 --vm-image="+image+" --vm-user-data="+dir+"/user-data", `
slurm-v-run sh -c 'hostname; id -un; pwd; cat /proc/1/comm
for i in $(seq 100); do [ -e /etc/from-user-data ] && break; sleep 1; done; cat /etc/from-user-data'`)
	contains(t, j.completes(), "vm0\n", "alice\n", j.dir+"\n", "systemd\n", "words of the user")
}

// A directory can be mounted elsewhere, and read-only; the job's own is at its
// place, and a disk as large as asked for.
func TestMountsAndDiskSize(t *testing.T) {
	t.Parallel()
	data := alice.must(t, "d=$(mktemp -d ~/data-XXXXXX) && echo input > $d/file && echo $d")
	defer alice.run(t, "rm -rf "+data)
	j := alice.submit(t, small+" --disk-size=3G --vm-mount="+data+":/mnt/data:ro", `
slurm-v-run -Q sh -c 'cat /mnt/data/file; touch /mnt/data/new 2>/dev/null && echo writable; echo result > result; df -BM --output=size / | tail -1'`)
	out := j.completes()
	contains(t, out, "input")
	if strings.Contains(out, "writable") {
		t.Error("a read-only mount can be written to")
	}
	if got := j.file("result"); got != "result" {
		t.Errorf("the job's directory holds %q", got)
	}
	if !strings.Contains(out, " 2") && !strings.Contains(out, "29") && !strings.Contains(out, "28") {
		t.Errorf("the root file system has not grown:\n%s", out)
	}
}

// On a network of the site the addresses come from the site's DHCP server.
func TestSiteNetwork(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, "--nodes=2 --vm-per-node=1 --memory-per-vm=384M --time=5 --vm-network=site", `
slurm-v-run -n 2 -Q sh -c 'ip -4 -o addr show scope global; getent hosts vm0 vm1; ping -c 1 -W 5 vm0 >/dev/null && ping -c 1 -W 5 vm1 >/dev/null && echo both answer'`)
	out := j.completes()
	if n := strings.Count(out, "both answer"); n != 2 {
		t.Errorf("%d of 2 VMs reach both", n)
	}
	contains(t, out, "10.78.0.")
}
