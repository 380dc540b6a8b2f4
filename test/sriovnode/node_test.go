//go:build sriov

// Package sriovnode tests virtual functions (VFs) with a real kernel and its real
// drivers, on the emulated node that scripts/sriov-node boots: run `make sriov`.
//
// The node's cards are alike: eth0 and eth1 on one cable, each with all of its
// VFs. Every test leaves them as they were and looks whether they are.
package sriovnode

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vfpool"
	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vfpool/sriov"
)

const (
	vfsPerPF = 7 // as many as an igb has
	account  = 4711
)

func TestMain(m *testing.M) {
	if os.Getenv(dieAt) != "" {
		liveAndDie()
	}
	if name, _ := os.Hostname(); name != "sriov-node" {
		fmt.Fprintln(os.Stderr, "these tests change network cards and run on the emulated node only: make sriov")
		os.Exit(1)
	}
	if err := makeVFs(); err != nil {
		fmt.Fprintln(os.Stderr, "make VFs:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// makeVFs is what the administrator does at boot. The VFs of eth0 get their driver
// and an address each, since without one the driver takes another whenever it is
// loaded; those of eth1 get neither.
func makeVFs() error {
	const script = `set -e
echo 0 >/sys/class/net/eth1/device/sriov_drivers_autoprobe
for pf in eth0 eth1; do echo 7 >/sys/class/net/$pf/device/sriov_numvfs; done
for vf in 0 1 2 3 4 5 6; do ip link set eth0 vf $vf mac 02:00:00:00:00:0$vf; done`
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return awaitLinks()
}

// awaitLinks waits for the PFs, which go down to make VFs. An igb sets rates only
// while its link is up.
func awaitLinks() error {
	deadline := time.Now().Add(time.Minute)
	for _, pf := range []string{"eth0", "eth1"} {
		for !up(pf) {
			if time.Now().After(deadline) {
				return fmt.Errorf("the link of %s stays down", pf)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return nil
}

func up(link string) bool {
	state, err := os.ReadFile("/sys/class/net/" + link + "/operstate")
	return err == nil && string(state) == "up\n"
}

// run returns what a program prints.
func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// snapshot is all that jobs change of the node's VFs, as the kernel's own tools and
// files tell it.
func snapshot(t *testing.T) string {
	t.Helper()
	var text bytes.Buffer
	for _, pf := range []string{"eth0", "eth1"} {
		text.WriteString(run(t, "ip", "-json", "-pretty", "link", "show", pf))
		for i := range vfsPerPF {
			vf := fmt.Sprintf("/sys/class/net/%s/device/virtfn%d", pf, i)
			override, err := os.ReadFile(vf + "/driver_override")
			if err != nil {
				t.Fatal(err)
			}
			driver, _ := os.Readlink(vf + "/driver")
			fmt.Fprintf(&text, "%s %d: driver %s, override %s", pf, i, filepath.Base(driver), override)
		}
	}
	text.WriteString(run(t, "ls", "-l", "--time-style=+", "/dev/vfio"))
	return text.String()
}

// keeps checks at the end of the test that VFs and leases are what they are now.
func (l lab) keeps(t *testing.T) {
	t.Helper()
	before := snapshot(t)
	t.Cleanup(func() { l.checkClean(t, before) })
}

func (l lab) checkClean(t *testing.T, before string) {
	t.Helper()
	if diff := cmp.Diff(before, snapshot(t)); diff != "" {
		t.Errorf("the VFs are not what they were (-before +after):\n%s", diff)
	}
	pfs, err := l.pool(t).List()
	if err != nil {
		t.Fatal(err)
	}
	for _, pf := range pfs {
		if pf.UsedVFs != 0 {
			t.Errorf("%d VFs of %s are still leased", pf.UsedVFs, pf.Name)
		}
	}
}

// A lab is a directory for the leases of VFs.
type lab struct{ state string }

func newLab(t *testing.T) lab { return lab{t.TempDir()} }

func (l lab) config() config.Config {
	cfg := config.Default()
	cfg.Paths.State = l.state
	return cfg
}

func (l lab) pool(t *testing.T) *vfpool.Pool {
	t.Helper()
	p, err := vfpool.Open(l.config(), "n1")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// claim asks for one VF per VM.
func claim(job uint32, vlan uint16, vfs ...jobspec.VF) vfpool.Demand {
	c := vfpool.Demand{Job: journal.ID{Job: job}, VLAN: vlan, Owner: owner.IDs{UID: account, GID: account}}
	for i, vf := range vfs {
		mac := fmt.Sprintf("06:00:00:00:%02x:%02x", job, i)
		c.Requests = append(c.Requests, vfpool.VFRequest{VM: i, NUMA: -1, MAC: mac, VF: vf})
	}
	return c
}

// acquire leases VFs until the test ends.
func (l lab) acquire(t *testing.T, c vfpool.Demand) []vfpool.Grant {
	t.Helper()
	t.Cleanup(func() { l.release(t, c.Job) })
	grants, err := l.pool(t).Acquire(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return grants
}

func (l lab) release(t *testing.T, job journal.ID) {
	t.Helper()
	// Not the test's context, which has ended when it cleans up.
	if err := l.pool(t).Release(context.Background(), job); err != nil {
		t.Error(err)
	}
}

func nodesPFs(t *testing.T) []device.PF {
	t.Helper()
	pfs, err := sriov.Open("/", sriov.Netlink()).PFs()
	if err != nil {
		t.Fatal(err)
	}
	return pfs
}
