package check

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/config"
)

// vxlanPorts warns about a port that any user can take: by taking it first, a user can
// keep VM jobs of several nodes off this node.
func vxlanPorts(_ context.Context, i *inspection) (results []Result) {
	first := i.firstOfUsers()
	for _, name := range slices.Sorted(maps.Keys(i.cfg.Network)) {
		if network := i.cfg.Network[name]; network.Type == config.NetworkJob {
			results = append(results, judgePort(name, network.VXLANPort, first, i.probe.PortHolders[name]))
		}
	}
	return results
}

// firstOfUsers returns the first port that ordinary users can take.
func (i *inspection) firstOfUsers() int {
	text, _ := os.ReadFile(i.path("/proc/sys/net/ipv4/ip_unprivileged_port_start"))
	if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
		return n
	}
	return privileged
}

const privileged = 1024 // the kernel's default

func judgePort(network string, port, first int, holder string) Result {
	const name = "VXLAN port"
	seen := fmt.Sprintf("network %s: UDP port %d", network, port)
	switch {
	case holder != "":
		return wrong(name, seen+" is taken by "+holder, "end it, or choose another vxlan_port, the same on all nodes: jobs with several nodes fail here")
	case port >= first:
		return warning(name, fmt.Sprintf("%s, and any user may take those from %d on", seen, first),
			fmt.Sprintf("have it below net.ipv4.ip_unprivileged_port_start, such as %d below %d: a user who takes it first keeps jobs with several nodes off this one", config.VXLANPort, privileged))
	}
	return ok(name, seen+", which only root can take")
}
