package docs

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/internal/filetest"
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

// Packages of a later commit are newer than those of an earlier one, and the programs in them know their commit, though the
// sources from which they are built are no clone.
func TestPackagesAreOfACommit(t *testing.T) {
	const later, date = "2026-11-28T00:30:00+02:00", "202611272230"
	dir := clone(t, later)
	commit := strings.TrimSpace(run(t, dir, "git", "describe", "--always"))
	tests := map[string]struct {
		kind, change, of string
		want             []string
	}{
		"deb": {"deb", "", "", []string{
			"(0.1.0+git" + date + "." + commit + "~deb",
			"make build PREFIX=/usr SYSCONFDIR=/etc BUILD=build/debian COMMIT=" + commit + "\n",
			"BUILD=build/debian COMMIT=" + commit + " DESTDIR=",
		}},
		"deb of uncommitted changes": {"deb", "more", "", []string{"." + commit + ".dirty~deb", "COMMIT=" + commit + "-dirty\n"}},
		"rpm":                        {"rpm", "", "", []string{"\nslurm_v_release 1.git" + date + "." + commit + "\n", "\nslurm_v_commit " + commit + "\n"}},
		"rpm of uncommitted changes": {"rpm", "more", "", []string{"." + commit + ".dirty\n", "\nslurm_v_commit " + commit + "-dirty\n"}},
		"deb of a commit":            {"deb", "more", "HEAD", []string{"(0.1.0+git" + date + "." + commit + "~deb", "COMMIT=" + commit + "\n"}},
		"rpm of a commit":            {"rpm", "more", "HEAD", []string{"\nslurm_v_release 1.git" + date + "." + commit + "\n", "\nslurm_v_commit " + commit + "\n"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			filetest.Write(t, filepath.Join(dir, "LICENSE"), "text"+tt.change)
			said := run(t, dir, "bash", "scripts/package", tt.kind, t.TempDir(), tt.of)
			for _, want := range tt.want {
				if !strings.Contains(said, want) {
					t.Errorf("%q is not in\n%s", want, said)
				}
			}
		})
	}
	for _, line := range []string{"\nRelease:        %{slurm_v_release}%{?dist}\n", " %{?slurm_v_commit:COMMIT=%{slurm_v_commit}}\n"} {
		if !strings.Contains(packaging(t, "slurm-v.spec"), line) {
			t.Errorf("slurm-v.spec does not have %q", line)
		}
	}
}

// clone makes a repository whose commit has a date, and what builds packages of it. Programs that say what they are told
// stand for those that build.
func clone(t *testing.T, date string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, file := range []string{"Makefile", "scripts/package", "packaging/slurm-v.spec", "packaging/debian/rules"} {
		text, err := os.ReadFile(filepath.Join("..", file))
		if err != nil {
			t.Fatal(err)
		}
		filetest.Write(t, filepath.Join(dir, file), string(text))
	}
	filetest.Write(t, filepath.Join(dir, "LICENSE"), "text")
	t.Setenv("GIT_COMMITTER_DATE", date)
	run(t, dir, "git", "init", "--quiet")
	run(t, dir, "git", "add", ".")
	run(t, dir, "git", "-c", "user.name=x", "-c", "user.email=x", "commit", "--quiet", "--message=x")
	stand := t.TempDir()
	for name, script := range map[string]string{
		"dh": "", "go": "",
		"dpkg-buildpackage": "head -n 1 debian/changelog; make -s -f debian/rules MAKE='echo make' override_dh_auto_build override_dh_auto_install; touch ../x.deb",
		"rpmbuild":          `printf '%s\n' "$@"; for a; do case $a in "_topdir "*) mkdir -p "${a#* }/RPMS" ;; esac; done`,
	} {
		if err := os.WriteFile(filepath.Join(stand, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", stand+":"+os.Getenv("PATH"))
	t.Setenv("SLURM_RELEASE", "24.11")
	return dir
}

// run returns what a program prints, in a directory.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// What only a boot would end is gone with the package of nodes: sockets with a job's mount, and the filter of the port of
// VXLAN. What jobs have left on the disk is gone when the package is purged. The site's own mounts stay.
func TestTheRemovedPackageOfNodesLeavesNothing(t *testing.T) {
	_, rpm, _ := strings.Cut(packaging(t, "slurm-v.spec"), "\n%postun node\n")
	rpm, _, _ = strings.Cut(rpm, "\n%files\n")
	deb := packaging(t, "debian/slurm-v-node.postrm")
	const did = "umount --lazy run/n1/jobs/7.0/libvirt/lib/qemu/domain-1/m\numount --lazy run/n1/jobs/7.0/libvirt/lib/qemu\n" +
		"nft delete table inet slurmv\n"
	tests := map[string]struct{ script, argument, did, left string }{
		"deb upgraded": {deb, "upgrade", "", "run state"},
		"deb removed":  {deb, "remove", did, "state"},
		"deb purged":   {deb, "purge", did + "umount --lazy state/n1/jobs/7.0/vm0/m\n", ""},
		"rpm upgraded": {rpm, "1", "", "run state"},
		"rpm removed":  {rpm, "0", did, "state"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			did, left := removeFrom(t, tt.script, tt.argument)
			if did != tt.did || left != tt.left {
				t.Errorf("it did\n%s, and left %q; want\n%s and %q", did, left, tt.did, tt.left)
			}
		})
	}
}

// While jobs have VMs on the node, its package is not removed. It may be upgraded.
func TestThePackageOfNodesStaysWhileJobsHaveVMs(t *testing.T) {
	_, rpm, _ := strings.Cut(packaging(t, "slurm-v.spec"), "\n%preun node\n")
	rpm, _, _ = strings.Cut(rpm, "\n%postun node\n")
	for name, of := range map[string]struct{ script, remove, upgrade string }{
		"deb": {packaging(t, "debian/slurm-v-node.prerm"), "remove", "upgrade"}, "rpm": {rpm, "0", "1"},
	} {
		state := t.TempDir()
		try := func(what string) (string, error) {
			c := exec.Command("sh", "-c", strings.ReplaceAll(of.script, "/var/lib/slurmv", state), "sh", what)
			out, err := c.CombinedOutput()
			return string(out), err
		}
		if out, err := try(of.remove); err != nil || out != "" {
			t.Errorf("%s without jobs: %v, %s", name, err, out)
		}
		record := filepath.Join(state, "n1/jobs/7.0")
		if err := os.MkdirAll(record, 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := try(of.remove); err == nil || !strings.Contains(out, "run slurmv clean") || !strings.HasSuffix(out, "\n"+record+"\n") {
			t.Errorf("%s with a job: %v, %s", name, err, out)
		}
		if out, err := try(of.upgrade); err != nil || out != "" {
			t.Errorf("%s is not upgraded: %v, %s", name, err, out)
		}
	}
}

// removeFrom runs a script on a node whose directories are below one of its own. It returns what the script did to mounts
// and filters, and which of the directories it has left.
func removeFrom(t *testing.T, script, argument string) (did, left string) {
	t.Helper()
	root, bin := t.TempDir(), t.TempDir()
	for _, dir := range []string{"run/n1/jobs/7.0/libvirt/lib/qemu/domain-1/m", "state/n1/jobs/7.0/vm0/m"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	filetest.Write(t, filepath.Join(root, "mountinfo"), strings.ReplaceAll(`22 1 0:21 / ROOT/run rw - tmpfs x rw
30 22 0:21 / ROOT/run/n1/jobs/7.0/libvirt/lib/qemu rw - tmpfs x rw
31 30 0:41 / ROOT/run/n1/jobs/7.0/libvirt/lib/qemu/domain-1/m rw - fuse x rw
32 1 0:42 / ROOT/state/n1 rw - ext4 x rw
33 1 0:43 / ROOT/state/n1/jobs/7.0/vm0/m rw - fuse x rw
34 1 0:44 / ROOT/runner/n1/x rw - ext4 x rw
`, "ROOT", root))
	for name, stand := range map[string]string{
		"unshare": `shift 3; exec "$@"`, "umount": `echo "umount $*" >>` + root + `/did`, "nft": `echo "nft $*" >>` + root + `/did`,
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+stand), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	script = strings.NewReplacer("/run/slurmv", root+"/run", "/var/lib/slurmv", root+"/state", "/proc/self/mountinfo", root+"/mountinfo").Replace(script)
	run(t, "/", "sh", "-c", script, "sh", argument)
	text, _ := os.ReadFile(filepath.Join(root, "did"))
	for _, dir := range []string{"run", "state"} {
		if _, err := os.Stat(filepath.Join(root, dir)); err == nil {
			left += " " + dir
		}
	}
	return strings.ReplaceAll(string(text), root+"/", ""), strings.TrimSpace(left)
}

// slurmd calls its health check without arguments and tells it the node's name; an exit status other than 0 counts.
func TestTheHealthCheckCleansTheNode(t *testing.T) {
	bin := t.TempDir()
	filetest.Write(t, filepath.Join(bin, "check"), strings.ReplaceAll(packaging(t, "healthcheck.in"), "@BINDIR@", bin))
	if err := os.WriteFile(filepath.Join(bin, "slurmv"), []byte("#!/bin/sh\necho $* of $SLURMD_NODENAME\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("/bin/sh", filepath.Join(bin, "check"))
	c.Env = []string{"SLURMD_NODENAME=n7"}
	out, _ := c.CombinedOutput()
	if got := c.ProcessState.ExitCode(); string(out) != "clean of n7\n" || got != 3 {
		t.Errorf("it says %q and ends with %d", out, got)
	}
	if want := "\n    HealthCheckProgram=/usr/local/libexec/slurm-v/healthcheck\n"; !strings.Contains(section(t, "admin.md", "## Cleaning up"), want) {
		t.Errorf("administrators do not read %q", want)
	}
}

// A program that make does not install, or that one kind of packages does not have, is missing where the other has it.
func TestBothKindsOfPackagesHaveTheSamePrograms(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string]string{"slurm-v": "%files", "slurm-v-node": "%files node"} {
		_, of, _ := strings.Cut(packaging(t, "slurm-v.spec"), "\n"+files+"\n")
		of, _, _ = strings.Cut(of, "\n\n")
		deb, rpm := programsOf(packaging(t, "debian/"+name+".install"), "usr/libexec"), programsOf(of, "%{_libexecdir}")
		if len(deb) == 0 {
			t.Errorf("no programs of %s were found", name)
		}
		for _, program := range deb {
			if !slices.ContainsFunc(rpm, func(pattern string) bool { found, _ := path.Match(pattern, program); return found }) {
				t.Errorf("the RPM %s does not have %s, only %q", name, program, rpm)
			}
			if !strings.Contains(string(makefile), program) {
				t.Errorf("the Makefile does not name %s", program)
			}
		}
	}
}

// programsOf returns the names, or their patterns, that a list of files has in our directory of this one.
func programsOf(list, dir string) (names []string) {
	for line := range strings.Lines(list) {
		if name, found := strings.CutPrefix(strings.TrimSpace(line), dir+"/slurm-v/"); found {
			names = append(names, name)
		}
	}
	return names
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
