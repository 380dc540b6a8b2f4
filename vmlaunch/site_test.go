package vmlaunch

import (
	"encoding/json"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/internal/filetest"
	"github.com/slurm-v/slurm-v/vmlaunch/plan/plantest"
)

func TestTemplatesForAllAreMadeByNobodyElse(t *testing.T) {
	o, err := siteOwner(0)
	if err != nil {
		t.Fatal(err)
	}
	if account, err := user.LookupId(strconv.Itoa(int(o.UID))); err == nil {
		t.Errorf("%s is an account of this node", account.Username)
	}
	if len(o.Groups) != 1 || o.Groups[0].GID != 0 {
		t.Errorf("groups %v, want the image's", o.Groups)
	}
}

func TestTemplatesForAllAreNotMadeBesideAProcessOfThatUser(t *testing.T) {
	if err := refuseOthers("/proc", siteUID); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sleep", "60")
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: siteUID, Gid: siteUID}}
	if err := c.Start(); err != nil {
		t.Skip("run as root: ", err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	want := "process " + strconv.Itoa(c.Process.Pid) + " runs with uid 2100000000"
	if err := refuseOthers("/proc", siteUID); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error = %v, want %q", err, want)
	}
}

// Root is in no job and has no cores of its own, but the jobs that want the template have.
func TestTemplatesForAllAreForVMsAsJobsHaveThem(t *testing.T) {
	for confined, unpinned := range map[string]string{"yes": "", "no": unconfined} {
		cfg, job := stateIn(t.TempDir()), plantest.Job()
		cfg.QEMU.Accel, cfg.QEMU.Emulator, cfg.Slurm.Bin = config.AccelTCG, knownEmulator(t, cfg.StateDir(job.Node)), t.TempDir()
		scontrol := "#!/bin/sh\necho 'ConstrainCores = " + confined + "'\n"
		if err := os.WriteFile(filepath.Join(cfg.Slurm.Bin, "scontrol"), []byte(scontrol), 0o755); err != nil {
			t.Fatal(err)
		}
		job.Spec.VMsPerNode, job.Spec.VCPUs = 1, 1
		p, err := planSite(t.Context(), cfg, job, plantest.Account)
		if err != nil {
			t.Fatal(err)
		}
		if cpus := p.VMs[0].Pinning.CPUs(); p.Unpinned != unpinned || (len(cpus) == 1) != (unpinned == "") || !p.Site {
			t.Errorf("ConstrainCores=%s: %q, CPUs %v, site %v", confined, p.Unpinned, cpus, p.Site)
		}
	}
}

// knownEmulator is a file whose devices the node with that state directory knows already.
func knownEmulator(t *testing.T, state string) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	is, err := images.Identify(path)
	if err != nil {
		t.Fatal(err)
	}
	known, err := json.Marshal(map[string]any{"qemu": is})
	if err != nil {
		t.Fatal(err)
	}
	filetest.Write(t, filepath.Join(state, "emulator"), string(known))
	return path
}
