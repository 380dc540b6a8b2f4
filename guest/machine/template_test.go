package machine

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/guest"
)

func TestTemplate(t *testing.T) {
	d := newDouble(t, map[string]string{
		"run/systemd/system/x":         "",
		"proc/self/mountinfo":          "",
		"etc/ssh/ssh_host_rsa_key":     "secret",
		"etc/ssh/ssh_host_rsa_key.pub": "of it",
		"etc/ssh/sshd_config":          "",
		"var/lib/systemd/random-seed":  "secret",
	})
	if err := d.Template(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"systemctl is-system-running --wait", "modprobe -q -a virtio_net fuse 9pnet_virtio 9p"}
	if diff := cmp.Diff(want, d.done); diff != "" {
		t.Errorf("what was done differs (-want +got):\n%s", diff)
	}
	for _, name := range []string{"etc/ssh/ssh_host_rsa_key", "etc/ssh/ssh_host_rsa_key.pub", "var/lib/systemd/random-seed"} {
		if _, err := os.Stat(d.path(name)); err == nil {
			t.Errorf("%s is in the template", name)
		}
	}
	if _, err := os.Stat(d.path("etc/ssh/sshd_config")); err != nil {
		t.Error(err)
	}
}

func fresh() *guest.Identity {
	return &guest.Identity{
		Seed: make([]byte, 64), MachineID: strings.Repeat("a1", 16),
		BootID: "11111111-2222-4333-8444-555555555555", HostKey: "KEY", HostKeyPublic: "PUBLIC",
	}
}

func TestARestoredVMBecomesAnother(t *testing.T) {
	d := newDouble(t, map[string]string{"usr/sbin/sshd": "", "etc/machine-id": "old\n", "proc/self/mountinfo": ""})
	d.reseedWith = func(seed []byte) error { return d.do("seed %d", len(seed)) }
	if _, err := d.Setup(t.Context(), guest.Setup{HostName: "vm3", Fresh: fresh()}); err != nil {
		t.Fatal(err)
	}
	want := []string{"seed 64", "mount /run/slurm-v/boot_id /proc/sys/kernel/random/boot_id  0x1000 ", "hostname vm3"}
	if diff := cmp.Diff(want, d.done); diff != "" {
		t.Errorf("what was done differs (-want +got):\n%s", diff)
	}
	for name, text := range map[string]string{
		"etc/machine-id": fresh().MachineID + "\n", "run/slurm-v/boot_id": fresh().BootID + "\n", "etc/ssh/ssh_host_ed25519_key": "KEY\n", "etc/ssh/ssh_host_ed25519_key.pub": "PUBLIC\n",
	} {
		if got := d.text(t, name); got != text {
			t.Errorf("%s = %q", name, got)
		}
	}
}

func TestNoIdentityIsTaken(t *testing.T) {
	tests := map[string]func(*guest.Identity){
		"a short seed":          func(id *guest.Identity) { id.Seed = id.Seed[:8] },
		"no machine id":         func(id *guest.Identity) { id.MachineID = "" },
		"two lines for one":     func(id *guest.Identity) { id.MachineID += "\nx" },
		"no boot id":            func(id *guest.Identity) { id.BootID = "x" },
		"a boot id in capitals": func(id *guest.Identity) { id.BootID = strings.ToUpper(id.BootID[:8]+"-AAAA") + id.BootID[13:] },
		"a machine id too long": func(id *guest.Identity) { id.MachineID += "a" },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDouble(t, map[string]string{"proc/self/mountinfo": ""})
			id := fresh()
			change(id)
			if _, err := d.Setup(t.Context(), guest.Setup{HostName: "vm3", Fresh: id}); err == nil {
				t.Error("no error")
			}
		})
	}
}
