package probe

import (
	"testing"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/slurm"
)

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
		err := probePeers(t.Context(), slurm.Client{}, config.Network{Peers: tt.peers}, "localhost", tt.address)
		if (err == nil) != tt.ok {
			t.Errorf("%s: error = %v", name, err)
		}
	}
}
