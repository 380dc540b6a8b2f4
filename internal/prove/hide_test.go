package prove

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/slurm"
)

func TestHide(t *testing.T) {
	names := Names{Nodes: []string{"n1", "n10", "gpu-n1", "n1-ib"}, Others: []string{"login.example.org", "login", "alice", "n1", ""}}
	tests := map[string]struct{ text, want string }{
		"a node":                 {"vm0 on n1 failed", "vm0 on node 1 failed"},
		"a node after its word":  {"node n10: no", "node 2: no"},
		"names that begin alike": {"n1, n10, gpu-n1", "node 1, node 2, node 3"},
		"a name within another":  {"n1-ib, n1", "node 4, node 1"},
		"a part of a word":       {"n100 svn1x", "n100 svn1x"},
		"a full name":            {"at n1.cluster.example.org:", "at node 1:"},
		"a list of nodes":        {"n[1,10] gpu-n[1-2]: no", "NAMES NAMES: no"},
		"a list of other things": {"Epilog[0] of rack[1-2]x[3]", "Epilog[0] of rack[1-2]x[3]"},
		"users and other hosts":  {"user alice on login and login.example.org", "user NAME on NAME and NAME"},
		"paths":                  {`open /home/alice/x: "/etc/passwd" (/a,b) =/x 1/2 and/or`, `open PATH: "PATH" (PATH,b) =PATH 1/2 and/or`},
		"addresses":              {"10.1.2.3:80 fd00::1:2 02:00:00:01:ab:cd 7.2.22 12:30", "ADDRESS:80 ADDRESS ADDRESS 7.2.22 12:30"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := names.Hide(tt.text); got != tt.want {
				t.Errorf("%q becomes %q, want %q", tt.text, got, tt.want)
			}
		})
	}
	if got := (Names{}).Hide("n1"); got != "n1" {
		t.Errorf("without names n1 becomes %q", got)
	}
}

// Slurm's commands name the controller, the database, the cluster and nodes that no job got.
func TestSiteNames(t *testing.T) {
	dir := t.TempDir()
	const scontrol = `#!/bin/sh
case "$*" in
*config) printf 'ClusterName = hpc\nSlurmctldHost[0] = ctl1.example.org(10.0.0.1)\nSlurmctldHost[1] = ctl2\nAccountingStorageHost = localhost\n' ;;
*node) printf 'NodeName=gpu%s NodeAddr=gpu%s-ib NodeHostName=h%s\n' 01 01 01 02 02 02 ;;
esac`
	if err := os.WriteFile(filepath.Join(dir, "scontrol"), []byte(scontrol), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	names, err := SiteNames(t.Context(), slurm.User(os.Environ()), []string{"gpu02"})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct{ text, want string }{
		"the controllers":         {"cannot reach ctl1.example.org, ctl1 and ctl2:6817", "cannot reach NAME, NAME and NAME:6817"},
		"the cluster":             {"hpc has no such account", "NAME has no such account"},
		"nodes":                   {"gpu02 and gpu01 of h01", "node 1 and NAME of NAME"},
		"names in other networks": {"gpu01-ib is unreachable", "NAME is unreachable"},
		"a list":                  {"gpu[01-02] are down", "NAMES are down"},
		"what tells nothing":      {"10 of localhost in 1 h", "10 of localhost in 1 h"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := names.Hide(tt.text); got != tt.want {
				t.Errorf("%q becomes %q, want %q", tt.text, got, tt.want)
			}
		})
	}
	if err := os.WriteFile(filepath.Join(dir, "scontrol"), []byte("#!/bin/sh\nexit 1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := SiteNames(t.Context(), slurm.User(os.Environ()), nil); err == nil {
		t.Error("nothing says that names are missing")
	}
}

// Whatever text a proof has, in whatever field, it goes through Hide.
func TestAProofTellsNoNames(t *testing.T) {
	e := good()
	e.file("lost.err", "slurm-v: n1", "slurm-v: n1 of alice at 10.0.0.1 in /home/alice")
	e.Outcomes[jobNodes].Files["check.0"] = strings.ReplaceAll(e.Outcomes[jobNodes].Files["check.0"], "QEMU emulator", "QEMU of alice on n2")
	open := e.Judge()
	told := open.Hide(Names{Nodes: e.Request.On, Others: []string{"alice"}})
	for name, p := range map[string]Proof{"open": open, "hidden": told} {
		var text bytes.Buffer
		if err := p.WriteJSON(&text); err != nil {
			t.Fatal(err)
		}
		if err := p.WriteHTML(&text); err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"alice", "n2", "10.0.0.1", "/home"} {
			if found := strings.Contains(text.String(), secret); found != (name == "open") {
				t.Errorf("%s: %q is in the files: %v", name, secret, found)
			}
		}
	}
	if len(told.Steps) != len(open.Steps) || told.Steps[0].Name != "preflight" || len(told.Costs) == 0 {
		t.Errorf("the proof without names is another: %+v", told)
	}
}
