//go:build !noguests

package vmlaunch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/play"
)

// libvirt gives the owner a directory for each VM, and writes there as root by names. Links of the owner's lead it
// nowhere.
func TestTheOwnersLinksLeadLibvirtNowhere(t *testing.T) {
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skipf("install QEMU and libvirt's driver for it: %v", err)
	}
	checkPart(t, "links "+play.OpenDir(t), [][2]string{
		{"libvirt's other directories", "<nil>"},
		{"directory of a VM", "too many levels of symbolic links"},
		{"given up", "<nil>"}, {"left", "[]"},
	})
}

func playLinks(t *testing.T, dir string) {
	v, _ := vmsWithLibvirt(t, dir)
	root := filepath.Join(v.Plan.Run, "libvirt")
	fmt.Println("libvirt's other directories:", writeByLink(t, filepath.Join(root, "etc")))
	fmt.Println("directory of a VM:", writeByLink(t, filepath.Join(root, "lib", "qemu", "domain-1-vm0")))
	fmt.Println("given up:", v.giveUp(t.Context()))
	left, _ := filepath.Glob(filepath.Join(v.Plan.Run, "*"))
	fmt.Println("left:", left)
}

// writeByLink writes as libvirt writes a VM's key, where the owner has put a link.
func writeByLink(t *testing.T, dir string) error {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
	victim := filepath.Join(t.TempDir(), "of-root")
	must(t, os.WriteFile(victim, nil, 0o600))
	key := filepath.Join(dir, "master-key.aes")
	must(t, os.Symlink(victim, key))
	file, err := os.OpenFile(key, os.O_WRONLY|os.O_TRUNC|os.O_CREATE, 0o600)
	if err != nil {
		return errors.Unwrap(err)
	}
	return errors.Join(file.Close(), unix.Chown(key, play.Owner, play.Owner))
}
