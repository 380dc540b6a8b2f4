package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The packages' table says that both kinds link job_submit.lua; what links it also unlinks it.
func TestEachPackageLinksTheScriptOfSlurmctld(t *testing.T) {
	const link, file = "/slurm-v/job_submit.lua", "/etc/slurm/job_submit.lua"
	spec := packaging(t, "slurm-v.spec")
	_, spec, _ = strings.Cut(spec, "%post controller")
	post, preun, _ := strings.Cut(spec, "%preun controller")
	for name, script := range map[string]string{"deb": packaging(t, "debian/slurm-v-controller.postinst"), "rpm": post} {
		if !strings.Contains(script, "ln -s") || !strings.Contains(script, link+" "+file) {
			t.Errorf("%s: nothing links %s:\n%s", name, file, script)
		}
	}
	for name, script := range map[string]string{"deb": packaging(t, "debian/slurm-v-controller.prerm"), "rpm": preun} {
		if !strings.Contains(script, "readlink "+file) || !strings.Contains(script, "rm ") {
			t.Errorf("%s: nothing removes %s:\n%s", name, file, script)
		}
	}
}

func packaging(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../packaging", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The rule for /dev/kvm applies at once, and an installation without udev goes on.
func TestThePackageOfNodesAppliesItsRule(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\necho \"$*\" >>" + dir + "/asked\nexit 1\n"
	for _, path := range []string{"", dir} {
		c := exec.Command("/bin/sh", "../packaging/debian/slurm-v-node.postinst", "configure")
		c.Env = []string{"PATH=" + path}
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("with the programs in %q: %v\n%s", path, err, out)
		}
		if err := os.WriteFile(filepath.Join(dir, "udevadm"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	asked, _ := os.ReadFile(filepath.Join(dir, "asked"))
	if want := "control --reload\ntrigger --action=change --sysname-match=kvm\n"; string(asked) != want {
		t.Errorf("udev was asked %q, want %q", asked, want)
	}
}
