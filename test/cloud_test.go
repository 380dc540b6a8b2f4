//go:build cluster

package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What dies while OpenStack makes a job's VMs, or while they run, leaves nothing in the cloud: as an administrator
// sees it, once the nodes were cleaned. None of these tests is parallel, since the cloud is the same for all.

// A service that is away for some seconds delays a job, and no more, whichever request it has not answered.
func TestCloudServicesAreKilled(t *testing.T) {
	needsCloud(t)
	for _, service := range []string{"keystone", "glance", "neutron", "nova-api", "nova-conductor", "nova-scheduler"} {
		for _, after := range []time.Duration{500 * time.Millisecond, 2 * time.Second} {
			t.Run(fmt.Sprint(service, " after ", after), func(t *testing.T) {
				j := alice.submit(t, onBothNodes, "slurm-v-run hostname")
				j.await("RUNNING")
				time.Sleep(after)
				killService(t, "ctl", service)
				time.Sleep(2 * time.Second)
				cloudUp(t)
				out := j.ends("COMPLETED", "0:0")
				contains(t, out, "vm0\n", "vm1\n")
			})
			nothingInTheCloud(t)
		}
	}
}

// The node's agent asks for the servers of all nodes. If it dies, the job ends.
func TestCloudRequesterIsKilled(t *testing.T) {
	needsCloud(t)
	for after := range 8 {
		t.Run(fmt.Sprint("after ", after, " halves of a second"), func(t *testing.T) {
			j := alice.submit(t, onBothNodes, "slurm-v-run sh -c 'echo running; sleep 300'")
			j.await("RUNNING")
			time.Sleep(time.Duration(after) * 500 * time.Millisecond)
			if !poll(func() bool { return j.signalled("KILL", "slurmv-agent launch").code == 0 }) {
				t.Fatal("the job has no agent")
			}
			j.await("FAILED", "CANCELLED", "COMPLETED", "NODE_FAIL")
		})
		nothingInTheCloud(t)
	}
}

// A host that loses nova-compute starts no server. The job waits, and goes on when it is back, or reads why not.
func TestCloudComputeIsKilled(t *testing.T) {
	needsCloud(t)
	for _, after := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 4 * time.Second} {
		t.Run(fmt.Sprint("after ", after), func(t *testing.T) {
			j := alice.submit(t, onBothNodes, "slurm-v-run hostname")
			j.await("RUNNING")
			time.Sleep(after)
			killService(t, "n2", "nova-compute")
			time.Sleep(2 * time.Second)
			cloudUp(t)
			if state := j.await("COMPLETED", "FAILED"); state == "FAILED" {
				contains(t, j.output(), "OpenStack: ", "vm1")
			}
		})
		nothingInTheCloud(t)
	}
}

// A job that ends while the cloud is away leaves its servers to it. Its VMs are dead, its first node takes no jobs
// and says why, and both are mended when the cloud is back.
func TestCloudIsAwayAtTheEnd(t *testing.T) {
	needsCloud(t)
	j := alice.submit(t, onBothNodes, "slurm-v-run sh -c 'echo running; sleep 1000'")
	j.awaitOutput("running")
	found, _ := exec.Command("../scripts/leaks", j.id).Output()
	for node, vm := range map[string]string{"n1": "vm0", "n2": "vm1"} { // what runs is found
		contains(t, string(found), node+": domain: ")
		if vms := j.novaVMs(node); len(vms) != 1 || vms[vm] == "" {
			t.Fatalf("on %s nova runs %v, not %s", node, vms, vm)
		}
	}
	killService(t, "ctl", "nova-api")
	t.Cleanup(func() { cloudUp(t) })
	alice.must(t, "scancel "+j.id)
	if !poll(func() bool {
		return strings.Contains(root.must(t, "sinfo -h -N -o '%E'"), "slurm-v: job "+j.id+" left something in OpenStack")
	}) {
		t.Errorf("no node says that the cloud is away: %s", root.must(t, "sinfo -N -o '%N %T %E'"))
	}
	for _, node := range []string{"n1", "n2"} {
		if left := j.novaVMs(node); len(left) > 0 {
			t.Errorf("VMs outlive their job on %s: %v", node, left)
		}
	}
	cloudUp(t)
	nothingInTheCloud(t)
}

// A compute host loses its power: the job ends, and what it had there goes when the host is back.
func TestCloudHostLosesItsPower(t *testing.T) {
	needsCloud(t)
	for _, node := range []string{"n1", "n2"} {
		t.Run(node, func(t *testing.T) {
			j := alice.submit(t, onBothNodes, "slurm-v-run sh -c 'echo running; sleep 1000'")
			j.awaitOutput("running")
			restore := powerCut(t, node)
			j.await("NODE_FAIL", "FAILED", "CANCELLED")
			restore()
			nothingInTheCloud(t)
		})
	}
}

// Virtual functions are ports that nova binds to those of the VM's host. If it has none left, the job says so, and its ports
// go. Here a VM gets an ordinary NIC in place of each, see scripts/openstack, and a host has two.
func TestCloudVirtualFunctions(t *testing.T) {
	needsCloud(t)
	j := alice.submit(t, withVF+"--nodelist=n1 --vm-per-node=2 --sriov=1:max=5g", usesVFs)
	j.awaitOutput("the VF answers")
	contains(t, j.output(), "VF of vm0: 06:", "VF of vm1: 06:")
	mark := regexp.MustCompile(`(?m)^port \S+ \(slurm-v:\S+:` + j.id + `\.0, direct, hw_veb on n1, ACTIVE`)
	there, _ := exec.Command("../scripts/openstack", "leaks").Output()
	if n := len(mark.FindAll(there, -1)); n != 2 {
		t.Errorf("%d ports of the job are bound to virtual functions, want 2:\n%s", n, there)
	}
	contains(t, string(there), "QoS policy ")
	more := bob.submit(t, withVF+"--nodelist=n1 --vm-per-node=1 --sriov=1", "slurm-v-run hostname")
	contains(t, more.ends("FAILED", "1:0"), "OpenStack: server slurmv-"+more.id+".0-vm0-", "Node n1 has too little left of what the VM needs", "virtual functions")
	j.letGo()
	nothingInTheCloud(t)
}

func needsCloud(t *testing.T) {
	t.Helper()
	if !inOpenStack() {
		t.Skip("needs VMs of OpenStack: scripts/test openstack")
	}
	cloudUp(t)
}

// novaVMs returns the VMs of the job that nova runs on a node, with the process of each one's QEMU.
func (j *job) novaVMs(node string) map[string]string {
	j.t.Helper()
	program, err := os.ReadFile("../scripts/nova-vms")
	if err != nil {
		j.t.Fatal(err)
	}
	vms := map[string]string{}
	for line := range strings.Lines(root.must(j.t, "bash -s "+j.id+" <<'END'\n"+string(program)+"END\n", "--node", node)) {
		var domain, pid, server string
		if _, err := fmt.Sscan(line, &domain, &pid, &server); err != nil {
			j.t.Fatalf("nova-vms prints %q", line)
		}
		vms[strings.Split(server, "-")[2]] = pid // slurmv-7.0-vm1-0123456789abcdef
	}
	return vms
}

// killService kills a daemon of the cloud.
func killService(t *testing.T, host, name string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(clusterDir(), "openstack", host+"-"+name+".pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid < 2 {
		t.Fatalf("%s on %s has the pid %q", name, host, text)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// cloudUp starts what is dead.
func cloudUp(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("../scripts/openstack", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// nothingInTheCloud waits until the nodes have cleaned up.
func nothingInTheCloud(t *testing.T) {
	t.Helper()
	var left []byte
	if !poll(func() bool {
		cleanNodes(t)
		var err error
		left, err = exec.Command("../scripts/openstack", "leaks").CombinedOutput()
		return err == nil
	}) {
		t.Fatalf("in the cloud are\n%s", left)
	}
	checkNodes(t, "after that")
}
