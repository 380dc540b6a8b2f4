package slurm

import (
	"slices"
	"strings"
	"testing"
)

const (
	siteConf = `case "$*" in *config) cat <<'END'
AccountingStorageBackupHost = (null)
AccountingStorageExternalHost = db2.example.org:6819,db3
AccountingStorageHost   = db1
ClusterName             = hpc
SlurmctldHost[0]        = ctl1(10.0.0.1)
SlurmctldHost[1]        = ctl2
SlurmctldLogFile        = /log/of/none
END
exit ;; esac
`
	siteNodes = `echo "NodeName=n1 Arch=x86_64 NodeAddr=10.0.0.2 NodeHostName=host1 Comment=x"
echo "NodeName=n2 State=DOWN NodeAddr=n2 NodeHostName=n2 "
`
)

func TestSiteNames(t *testing.T) {
	const ofConf, ofNodes = "10.0.0.1 ctl1 ctl2 db1 db2.example.org db3 hpc", "10.0.0.2 host1 n1 n2"
	tests := map[string]struct{ scontrol, want, wantErr string }{
		"cluster, controllers, databases and nodes":   {siteConf + siteNodes, "10.0.0.1 10.0.0.2 ctl1 ctl2 db1 db2.example.org db3 host1 hpc n1 n2", ""},
		"a slurmctld that does not list its nodes":    {siteConf + "echo not allowed >&2; exit 1", ofConf, "not allowed"},
		"a slurmctld that does not tell its settings": {`case "$*" in *config) echo no >&2; exit 1 ;; esac` + "\n" + siteNodes, ofNodes, "no"},
		"a slurmctld that does not answer":            {"echo unable >&2; exit 1", "", "unable"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := SiteNames(t.Context(), Client{Bin: commands(t, map[string]string{"scontrol": tt.scontrol})})
			slices.Sort(got)
			if got := strings.Join(slices.Compact(got), " "); got != tt.want {
				t.Errorf("names are %q, want %q", got, tt.want)
			}
			if (err == nil) != (tt.wantErr == "") || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("error is %v, want %q", err, tt.wantErr)
			}
		})
	}
}
