//go:build cluster

package test

import "testing"

// Any image with cloud-init will do: slurmv-guest comes in by the seed disk, and
// so does what the user has for cloud-init. It can make him root, as docs/user.md
// says; then he can power his VM off.
const userData = `#cloud-config
write_files:
  - path: /etc/sudoers.d/me
    content: "alice ALL=(ALL) NOPASSWD: ALL\n"
`

func TestImageWithCloudInit(t *testing.T) {
	t.Parallel()
	image := output(t, "../scripts/guest-image", "--cloud-init")
	dir := alice.must(t, "mktemp -d ~/cloud-XXXXXX")
	defer alice.run(t, "rm -rf "+dir)
	alice.writeFile(t, dir+"/user-data", userData)
	j := alice.submit(t, "--nodes=1 --vm-per-node=1 --memory-per-vm=640M --time=90 --vm-image="+image+" --vm-user-data="+dir+"/user-data", `
slurm-v-run sh -c 'hostname; id -un; pwd; cat /proc/1/comm
for i in $(seq 100); do [ -e /etc/sudoers.d/me ] && break; sleep 1; done
sudo -n sh -c "echo I am \$(id -un)"; sudo -n poweroff; sleep 1000'`)
	contains(t, j.ends("FAILED", ""), "vm0\n", "alice\n", j.dir+"\n", "systemd\n", "I am root\n", "powered itself off")
}
