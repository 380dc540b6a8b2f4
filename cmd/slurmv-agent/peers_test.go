package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/config"
)

func TestNodeAddrs(t *testing.T) {
	const text = `NodeName=n1 Arch=x86_64 CoresPerSocket=4 Gres=vf:16 NodeAddr=10.77.0.11 NodeHostName=host1 Version=22.05.8 OS=Linux 6 Comment=NodeAddr=10.0.0.1
NodeName=n2 CoresPerSocket=4 NodeAddr=n2.site NodeHostName=n2 State=DOWN* Reason=x NodeName=n3 NodeAddr=10.0.0.1
`
	want := map[string]string{"n1": "10.77.0.11", "n2": "n2.site"}
	if diff := cmp.Diff(want, nodeAddrs(text)); diff != "" {
		t.Errorf("addresses differ (-want +got):\n%s", diff)
	}
}

func TestProbePeers(t *testing.T) {
	for name, tt := range map[string]struct {
		peers, address string
		ok             bool
	}{
		"where its name leads":      {"%n", "127.0.0.1", true},
		"elsewhere":                 {"%n", "10.9.0.1", false},
		"anywhere":                  {config.PeersAny, "10.9.0.1", true},
		"without an address":        {"%n", "", true},
		"a name that leads nowhere": {"%n.invalid", "127.0.0.1", false},
	} {
		err := probePeers(t.Context(), config.Network{Peers: tt.peers}, "localhost", tt.address)
		if (err == nil) != tt.ok {
			t.Errorf("%s: error = %v", name, err)
		}
	}
}
