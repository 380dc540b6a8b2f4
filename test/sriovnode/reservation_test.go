//go:build sriov

package sriovnode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/letter"
	"github.com/slurm-v/slurm-v/journal"
)

// reserve makes commands of Slurm in dir that know job 7, its reservation of the VLAN vlanOfVM,
// and node n1, of which they forget what it tells them. It returns what the configuration says about that.
func reserve(t *testing.T, dir string) (config string) {
	t.Helper()
	keyFile := filepath.Join(dir, "fabric.key")
	err := os.WriteFile(keyFile, []byte(letter.NewKey()), 0o600)
	key, keyErr := letter.Load(keyFile)
	id := journal.ID{Job: 7}
	text, sealErr := letter.Seal(key, letter.ReservationSubject("lab", id), fabric.Reservation{
		Cluster: "lab", Job: id, UID: account,
		Grants: []fabric.Grant{{Pool: "vlan", Kind: fabric.VLAN, Tags: []fabric.Tag{vlanOfVM}}},
	})
	err = errors.Join(err, keyErr, sealErr,
		command(dir, "scontrol", `echo 'ClusterName             = lab'`),
		command(dir, "sinfo", `for a; do case $a in --Format=*) end=${a##*comment:0};; esac; done
printf 'n1|%s\n' "$end"`),
		command(dir, "squeue", `for a; do case $a in --Format=*) end=${a##*admin_comment:0};; esac; done
printf '%s%s\n' "7|7|N/A|0|RUNNING|1700000000|n1|`+letter.PutBlock("", text)+`" "$end"`))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("[slurm]\nbin = %q\n[fabric]\nkey = %q\n[fabric.vlan]\npool = \"100-199\"\n", dir, keyFile)
}

func command(dir, name, script string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755)
}
