package guest

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/environ"
)

// sharedMemoryEnv returns what only the guest knows of a program whose MPI may use the memory
// of an IVShmem device: which socket leads to the host's PMI server, and the network's
// interfaces. UCX must not use lo: it takes the VMs of a node for one machine then. The way out leads to no other VM.
func sharedMemoryEnv(env []string) []string {
	var socket unix.Stat_t
	if !environ.Has(env, "SLURMV_MPI_SHM") || unix.Fstat(pmiFD, &socket) != nil {
		return nil
	}
	added := []string{"SLURMV_PMI_SOCKET=" + strconv.FormatUint(socket.Ino, 10)}
	if list := ucxDevices("/sys/class"); !environ.Has(env, "UCX_NET_DEVICES") && len(list) > 0 {
		added = append(added, "UCX_NET_DEVICES="+strings.Join(list, ","))
	}
	return added
}

// keepPMI leaves a program whose MPI may use that memory a descriptor of PMI, which its PMIx server
// speaks. The library in the program's process tells the relay there what MPI does.
func keepPMI(env []string) []string {
	if !environ.Has(env, "SLURMV_MPI_SHM") || unix.Dup3(serversPMI, pmiFD, 0) != nil {
		return env
	}
	return append(append(env, "SLURMV_PMI_FD="+strconv.Itoa(pmiFD)), sharedMemoryEnv(env)...)
}

// ucxDevices are the interfaces other than lo and the way out, and the ports of RDMA cards, in UCX's words:
// eth0, mlx5_0:1.
func ucxDevices(class string) (list []string) {
	links, _ := os.ReadDir(class + "/net")
	for _, l := range links {
		if l.Name() != "lo" && l.Name() != EgressLink {
			list = append(list, l.Name())
		}
	}
	cards, _ := os.ReadDir(class + "/infiniband")
	for _, c := range cards {
		ports, _ := os.ReadDir(class + "/infiniband/" + c.Name() + "/ports")
		for _, p := range ports {
			list = append(list, c.Name()+":"+p.Name())
		}
	}
	return list
}
