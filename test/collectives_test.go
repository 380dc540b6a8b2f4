//go:build cluster

package test

import (
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netns"

	"github.com/slurm-v/slurm-v/fabric/manager/managertest"
)

// listenOnCtl opens a socket on the host of slurmctld, for connections from there.
func listenOnCtl(t *testing.T) net.Listener {
	t.Helper()
	pid, err := strconv.Atoi(root.must(t, "cat /run/slurm/slurmctld.pid"))
	if err != nil {
		t.Fatal(err)
	}
	there, err := netns.GetFromPid(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	var socket net.Listener
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := netns.Set(there)
		if err == nil {
			socket, err = net.Listen("tcp", "127.0.0.1:0")
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return socket
}

// useFabricManager starts a fabric manager on the host of slurmctld. Until the test ends, jobs of two nodes have four multicast
// addresses there.
func useFabricManager(t *testing.T) *managertest.Manager {
	t.Helper()
	m := managertest.New()
	m.Listener.Close()
	m.Listener = listenOnCtl(t)
	m.StartTLS()
	t.Cleanup(m.Close)
	const dir = "/run/fabric-manager"
	files := "mkdir " + dir + " && cat > " + dir + "/ca.pem && echo secret > " + dir + "/token && chown slurm " + dir + "/token && chmod 600 " + dir + "/token"
	if o := root.runIn(t, m.Authority(), files); o.code != 0 {
		t.Fatal(o.stderr)
	}
	t.Cleanup(func() { root.must(t, "rm -r "+dir) })
	editOnCtl(t, clusterDir()+"/etc/slurm-v/slurmv.toml", `$ a [fabric.collectives]\nurl = "`+m.URL+`"\ntoken_file = "`+dir+`/token"\n`+
		`ca_file = "`+dir+`/ca.pem"\naddrs_per_job = 4\nmin_nodes = 2\ntimeout = 5\n`)
	return m
}

// hasSession reports whether the fabric manager has a session of the job.
func hasSession(m *managertest.Manager, session string) (has bool) {
	m.Change(func() { _, has = m.Sessions[session] })
	return has
}

// A job of two nodes has multicast addresses, and its programs are told how to use them. A smaller job has none. The
// addresses of a step that has ended come back while the job goes on, and all of them when it has ended, also if the fabric
// manager was away then. Not beside others: the configuration changes.
func TestHardwareCollectives(t *testing.T) {
	giveCards(t)
	m := useFabricManager(t)
	j := alice.submit(t, "--nodes=2 --ntasks=2 --vm-fabric=vni:1", `
srun --nodes=1 --ntasks=1 sh -c 'env | grep ^FI_CXI_'
srun --ntasks=2 sh -c 'echo up; until [ -e seen ]; do sleep 0.5; done'`)
	j.awaitOutput("up\n")
	session := root.must(t, "scontrol show config | sed -n 's/^ClusterName *= //p'") + "-" + j.id
	contains(t, j.output(),
		"FI_CXI_COLL_JOB_ID="+session+"\n", "FI_CXI_COLL_JOB_STEP_ID=0\n", "FI_CXI_COLL_MCAST_TOKEN=token-"+session+"\n",
		"FI_CXI_COLL_FABRIC_MGR_URL="+m.URL+"/fabric/collectives/multicasts\n",
		"FI_CXI_HWCOLL_ADDRS_PER_JOB=4\n", "FI_CXI_HWCOLL_MIN_NODES=2\n")
	m.Change(func() {
		if limit := m.Sessions[session]; limit != 4 {
			t.Errorf("the session may have %d addresses, want 4", limit)
		}
		m.Steps[session] = map[string][]int{"0": {1, 2}, "1": {3}}
	})
	if o := bob.run(t, strings.Replace(withOneVNI, "echo", "env | grep ^FI_CXI_; echo", 1)); strings.Contains(o.stdout, "FI_CXI_") || !strings.Contains(o.stdout, "got <1") {
		t.Errorf("a job of one node has multicast addresses: %+v", o)
	}
	var steps string
	if !poll(func() bool { m.Change(func() { steps = fmt.Sprint(m.Steps[session]) }); return steps == "map[1:[3]]" }) {
		t.Errorf("step 0 has ended, step 1 goes on, and the addresses are those of %s", steps)
	}
	m.Change(func() {
		m.Trouble = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	})
	j.letGo()
	without := alice.submit(t, "--nodes=2 --ntasks=2 --vm-fabric=vni:1", `srun --ntasks=1 sh -c 'env | grep ^FI_CXI_; echo "VNI: $SLINGSHOT_VNIS"'`)
	if said := without.completes(); strings.Contains(said, "FI_CXI_") || !strings.Contains(said, "VNI: 1") {
		t.Errorf("a job that starts without a fabric manager has %s", said)
	}
	if !hasSession(m, session) {
		t.Error("the session of a job that has ended is gone, but the fabric manager was away")
	}
	m.Change(func() { m.Trouble = nil })
	if !poll(func() bool { return !hasSession(m, session) }) {
		t.Error("the session of a job that has ended stays")
	}
	vnisComeBack(t)
}
