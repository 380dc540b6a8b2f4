package vmlaunch

import (
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"testing"
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
