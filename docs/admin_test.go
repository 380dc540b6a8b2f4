package docs

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unwalked are the blocks of admin.md that no test follows as they stand: the section, how the block begins, and why.
var unwalked = [][3]string{
	{"What a node needs", "dnf ", "RHEL"},
	{"Slurm", "#!/bin/sh", "vmstep/noplugin compares it with what the agent expects"},
	{"libvirt, QEMU, KVM", "# /etc/udev", "the packages have the rule, and a test of theirs"},
	{"Made at boot", "[vf]", "test/sriovnode makes VFs by the same keys"},
	{"Slurm counts them", "# slurm.conf", "TestSlurmCountsWhatThePoolHas compares it with a node"},
	{"Tags on the fabric", "Licenses=", "a number of the site's; internal/check compares it with the pools"},
	{"Templates", "slurmv image warm", "TestTemplatesByCommand, with a smaller VM"},
	{"Without the plugin", "Defaults!", "vmstep/noplugin and TestTasksWithoutThePlugin"},
}

// walks are the tests on a fresh system that follow blocks of admin.md.
var walks = []string{"../test/admin", "../test/packages", "../test/systemd", "../test/fresh.sh"}

// What administrators are told to type is typed by a test, or a reason says why not.
func TestAdministratorsReadWhatTestsDo(t *testing.T) {
	reasons, walked := slices.Clone(unwalked), uses(t)
	for _, block := range blocks(t) {
		section, first, text := block[0], block[1], block[2]
		reason := slices.IndexFunc(reasons, func(r [3]string) bool { return r[0] == section && strings.HasPrefix(first, r[1]) })
		switch {
		case reason >= 0:
			reasons = slices.Delete(reasons, reason, reason+1)
		case strings.HasPrefix(first, "["): // TestConfigurationOfTheDocuments reads settings of slurmv.toml
		case !slices.ContainsFunc(walked, func(u use) bool { return u.section == section && strings.Contains(text, u.text) }):
			t.Errorf("%s: no test follows\n%s", section, text)
		}
	}
	if len(reasons) > 0 {
		t.Errorf("nothing begins as in %q", reasons)
	}
}

// blocks returns section, first line and text of each block of admin.md.
func blocks(t *testing.T) (found [][3]string) {
	t.Helper()
	list := run(t, "..", "test/block")
	for line := range strings.Lines(list) {
		section, first, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		found = append(found, [3]string{section, first, run(t, "..", "test/block", section, first)})
	}
	if len(found) < 30 {
		t.Fatalf("only %d blocks:\n%s", len(found), list)
	}
	return found
}

// followed is how a test takes a block: block SECTION TEXT.
var followed = regexp.MustCompile(`\bblock "([^"]+)" '([^']+)'`)

// A use is the block that a test follows: that of the section which has the text.
type use struct{ walk, section, text string }

// uses returns all of them.
func uses(t *testing.T) (all []use) {
	t.Helper()
	for _, walk := range walks {
		script, err := os.ReadFile(walk)
		found := followed.FindAllStringSubmatch(string(script), -1)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s follows no block: %v", walk, err)
		}
		for _, f := range found {
			all = append(all, use{walk, f[1], f[2]})
		}
	}
	return all
}

// A walk that names a block which is no longer there would end after half an hour.
func TestWalksNameBlocksThatExist(t *testing.T) {
	for _, u := range uses(t) {
		if out, err := exec.CommandContext(t.Context(), "../test/block", u.section, u.text).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", u.walk, err, out)
		}
	}
}
