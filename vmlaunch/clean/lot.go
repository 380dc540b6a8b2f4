package clean

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/process"
	"github.com/slurm-v/slurm-v/slurm"
)

// asksCloud reports whether this clean looks into the cloud. All nodes would find the same there, with a login and lists
// of all servers, ports, policies, flavors and images each. So health checks draw lots; a clean that slurmd has not
// started is somebody's who wants to see the cloud clean.
func (n Node) asksCloud(ctx context.Context, proc string) (bool, error) {
	if n.Config.Backend.Type != config.BackendOpenStack {
		return false, nil
	}
	if !isHealthCheck(proc) {
		return true, nil
	}
	nodes, err := slurm.CountNodes(ctx, n.Client)
	return err == nil && isDrawn(nodes), err
}

// isHealthCheck reports whether slurmd has started this process.
func isHealthCheck(proc string) bool {
	return process.HasAncestor(proc, strconv.Itoa(os.Getpid()), "slurmd")
}

// seldomest bounds how seldom a node is drawn: the nodes with OpenStack may be few of a large cluster's.
const seldomest = 60

// isDrawn is true in one of as many health checks as there are nodes, so that on average one node of each round is drawn.
// The nodes do not know of each other.
func isDrawn(nodes int) bool { return rand.N(max(1, min(nodes, seldomest))) == 0 }
