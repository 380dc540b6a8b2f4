package controller

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/fabric/ledger"
)

// Files of root's in StateSaveLocation would keep slurmctld's own calls from the ledger.
func TestWhatRootMakesIsSlurmUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("run this test as root")
	}
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, above := range []string{filepath.Dir(dir), filepath.Dir(filepath.Dir(dir))} { // of the test alone
		if err := os.Chmod(above, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(dir, 64030, 64031); err != nil {
		t.Fatal(err)
	}
	root := exec.Command("/proc/self/exe", dir)
	root.Args[0] = "become"
	if out, err := root.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("it has made %v, %v; want the ledger and a lock", entries, err)
	}
	for _, e := range entries {
		var stat unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, e.Name()), &stat); err != nil || stat.Uid != 64030 || stat.Gid != 64031 || stat.Mode&0o777 != 0o600 {
			t.Errorf("%s: owner %d:%d, mode %o, %v", e.Name(), stat.Uid, stat.Gid, stat.Mode, err)
		}
	}
}

// playRoot makes what a controller has in a directory.
func playRoot(dir string) int {
	err := become(dir)
	if err == nil {
		_, _, err = locks(dir).try(lingerLock)
	}
	if err == nil {
		c := Controller{Dir: dir}
		err = c.with(context.Background(), func(*ledger.Ledger) error { return nil })
	}
	if status, _ := os.ReadFile("/proc/self/status"); err == nil && !strings.Contains(string(status), "Groups:\t \n") {
		err = fmt.Errorf("it has root's groups: %s", status)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}
