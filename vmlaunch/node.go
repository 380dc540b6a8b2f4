package vmlaunch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"libvirt.org/go/libvirt"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/images/template"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/sshkey"
	"github.com/slurm-v/slurm-v/internal/vmnet"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vfpool"
	"github.com/slurm-v/slurm-v/vmstep"
)

// A Node is the running VMs of one job on one node, from launch until the step
// ends.
type Node struct {
	plan       Plan
	journal    *journal.Journal
	hypervisor *hypervisor
	versions   string // of QEMU and libvirt
	network    vmnet.Network
	hosts      map[string]string // of the job's nodes, by their names; see Job.Hosts
	mtu        int
	userData   []byte // for cloud-init, the same in every VM
	log        *slog.Logger
	logFile    *boundedLog
	progress   func(vmstep.Progress)
	clock      *stopwatch
	up         time.Duration                   // when all VMs of this node were, on that clock
	image      atomic.Pointer[nodeagent.Image] // nil until it is known
	machines   []*machine
	templates  *template.Store
	from       *template.Template // of which the VMs are restored; nil if they boot
	shared     sharedMemory
	claims     *claims
	devices    *devices

	mapped chan struct{} // closed when every VM knows the others
	ending chan struct{} // closed when no new program may start
	gone   chan struct{} // closed when a VM has ended by itself

	mapOnce, endOnce, goneOnce sync.Once
	programs                   sync.WaitGroup
	programsMu                 sync.Mutex // no Add after Wait: guards ending against programs, and their counts

	proc string // where callers are looked up: /proc but for tests

	sshMu   sync.Mutex
	sshHost sshkey.Pair // of the guests' sshds
}

func newNode(plan Plan, j *journal.Journal, clock *stopwatch, progress func(vmstep.Progress)) *Node {
	n := &Node{
		plan: plan, journal: j, progress: progress, clock: clock, log: slog.New(slog.DiscardHandler), proc: "/proc",
		shared: sharedMemory{made: make(chan struct{})},
		mapped: make(chan struct{}), ending: make(chan struct{}), gone: make(chan struct{}),
	}
	for _, vm := range plan.VMs {
		n.machines = append(n.machines, &machine{plan: vm, node: n, address: vm.Address})
	}
	count := plan.Job.Spec.IVShmem.Devices
	n.claims, n.devices = newClaims(count, plan.Job.Step), newDevices(count, len(plan.VMs), n.wipeRegion)
	return n
}

// openLog starts the node's own log of the job, which its user gets to see.
func (n *Node) openLog() (err error) {
	if n.logFile, err = newBoundedLog(filepath.Join(n.plan.State, "agent.log")); err != nil {
		return err
	}
	n.log = slog.New(slog.NewTextHandler(n.logFile, nil))
	return nil
}

// close ends what this process holds open. The VMs are the journal's business.
func (n *Node) close() {
	for _, m := range n.machines {
		m.close()
	}
	for _, m := range n.shared.memory {
		_ = m.Close()
	}
	if n.logFile != nil {
		_ = n.logFile.Close()
	}
}

// A machine is one running VM.
type machine struct {
	plan    VMPlan
	node    *Node
	vfs     []vfpool.Grant
	domain  *libvirt.Domain
	console *console
	session *guest.Session
	meter   *guest.Meter // of its clock; nil before there is a session
	turn    turn

	programs int // under the node's programsMu

	mu        sync.Mutex
	address   netip.Prefix
	stages    []nodeagent.Stage
	state     string
	since     time.Duration // of the stage, on the node's clock
	clockRate *nodeagent.Clock
	stop      string // why the guest ended by itself
	restoring bool   // its end would not be the job's
}

func (m *machine) close() {
	m.endSession()
	if m.console != nil {
		_ = m.console.Close()
	}
}

func (m *machine) setSession(s *guest.Session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.session = s
}

// endSession ends all programs of the VM.
func (m *machine) endSession() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.session != nil {
		_ = m.session.Close()
	}
}

// stopReason is empty while the guest runs.
func (m *machine) stopReason() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stop
}

// describe is what other nodes and people see of the VM.
func (m *machine) describe() nodeagent.VM {
	m.mu.Lock()
	defer m.mu.Unlock()
	vm := nodeagent.VM{
		Number: m.plan.Number, Index: m.plan.Index, Name: m.plan.Name,
		MAC: m.plan.MAC, State: m.state, Stages: append([]nodeagent.Stage(nil), m.stages...),
		CPUs: cpuList(m.plan.Pinning.CPUs()), EmulatorCPUs: cpuList(m.plan.Pinning.Emulator),
		Clock: m.clockRate,
	}
	if m.address.IsValid() {
		vm.Address = m.address.Addr().String()
	}
	if m.stop != "" {
		vm.State, vm.Cause = "off", m.stop
	}
	return vm
}

// stopped is libvirt telling that a guest has ended. While the job runs that is
// the guest's own doing: reclaim kills QEMU after this process is gone.
func (n *Node) stopped(uuid, reason string) {
	if reason == qemuEnded && outOfMemory("/", os.Getpid()) {
		reason += " (the job's memory is used up)"
	}
	for _, m := range n.machines {
		if m.plan.UUID != uuid {
			continue
		}
		m.mu.Lock()
		m.stop = reason
		restoring := m.restoring
		m.mu.Unlock()
		n.log.Warn("VM ended", "vm", m.plan.Name, "reason", reason)
		m.endSession()
		if restoring {
			continue
		}
		n.goneOnce.Do(func() { close(n.gone) })
	}
}

// failure is the sentence about the VMs that have ended by themselves, nil while
// all run.
func (n *Node) failure() error {
	var all error
	for _, m := range n.machines {
		if why := m.stopReason(); why != "" {
			all = errors.Join(all, fmt.Errorf("%s on node %s %s", m.plan.Name, n.plan.Job.Node, why))
		}
	}
	return all
}

// Describe returns the VMs of this node and what state they are in.
func (n *Node) Describe() nodeagent.NodeVMs {
	d := nodeagent.NodeVMs{
		Node: n.plan.Job.Node, Rank: n.plan.Job.Rank, Claims: n.devices.claims(), Unpinned: n.plan.Unpinned,
		Began: n.clock.began, Image: n.image.Load(), Stages: n.clock.noted(),
	}
	if n.network.Underlay.Addr.IsValid() {
		d.Underlay = n.network.Underlay.Addr.String()
	}
	for _, m := range n.machines {
		d.VMs = append(d.VMs, m.describe())
	}
	return d
}

// createNetwork makes this node's part of the job's network. A bridge of the
// site is there already.
func (n *Node) createNetwork(ctx context.Context) error {
	if n.plan.Network.Type != config.NetworkJob {
		return nil
	}
	n.network = vmnet.Network{ID: n.plan.Job.ID, Nodes: n.plan.Job.Nodes, Port: uint16(n.plan.Network.VXLANPort)}
	if n.network.Nodes > 1 {
		underlay, err := vmnet.AutoUnderlay(n.plan.Network.Underlay)
		if err != nil {
			return err
		}
		n.network.Underlay = underlay
	}
	return vmnet.Create(ctx, n.network)
}

// SetMap tells every VM of this node of all VMs of the job, and the network of
// the nodes they are on. It may be called once.
func (n *Node) SetMap(ctx context.Context, all []nodeagent.NodeVMs) error {
	err := errors.New("the job's VMs know each other already")
	n.mapOnce.Do(func() {
		if err = n.setMap(ctx, all); err == nil {
			close(n.mapped)
			n.noteMapped()
		}
	})
	return err
}

// noteMapped completes the record of the launch. The VMs are worth more than it is.
func (n *Node) noteMapped() {
	n.clock.note(stageNetwork, n.up, n.clock.now())
	if err := n.recordStages(); err != nil {
		n.log.Warn("the record of the launch is not complete", "error", err)
	}
}

func (n *Node) setMap(ctx context.Context, all []nodeagent.NodeVMs) error {
	hosts, peers, err := n.plan.readMap(all)
	if err != nil {
		return err
	}
	if n.network.Nodes > 1 {
		if err := n.connectPeers(ctx, peers); err != nil {
			return err
		}
	}
	each, ctx := errgroup.WithContext(ctx)
	each.SetLimit(hostsAtOnce)
	for _, m := range n.machines {
		each.Go(func() error {
			if err := m.session.SetHosts(ctx, hosts); err != nil {
				return fmt.Errorf("write the hosts of the job into %s: %w", m.plan.Name, err)
			}
			return nil
		})
	}
	return each.Wait()
}

// hostsAtOnce bounds the copies of the job's names, megabytes in the largest jobs, on
// their way to the VMs.
const hostsAtOnce = 16

// readMap takes from the map what this node needs. The map has come by way of
// the user's own processes, so it can only be about his own VMs' names.
func (p Plan) readMap(all []nodeagent.NodeVMs) (hosts []guest.Host, peers []Peer, err error) {
	if len(all) != p.Job.Nodes {
		return nil, nil, fmt.Errorf("the map of the job's VMs has %d nodes instead of %d", len(all), p.Job.Nodes)
	}
	for _, node := range all {
		for _, vm := range node.VMs {
			addr, err := netip.ParseAddr(vm.Address)
			if err != nil {
				return nil, nil, fmt.Errorf("the map of the job's VMs: %w", err)
			}
			host := guest.Host{Name: fmt.Sprintf("vm%d", vm.Number), Address: addr.String()}
			if p.Network.Type == config.NetworkJob {
				host.MAC = vmnet.MAC(p.Job.ID.Job, vm.Number).String()
			}
			hosts = append(hosts, host)
			vfs, err := p.vfHosts(vm.Number)
			if err != nil {
				return nil, nil, err
			}
			hosts = append(hosts, vfs...)
		}
		if node.Rank == p.Job.Rank || node.Underlay == "" {
			continue
		}
		addr, err := netip.ParseAddr(node.Underlay)
		if err != nil {
			return nil, nil, fmt.Errorf("the map of the job's VMs: %w", err)
		}
		peers = append(peers, Peer{node.Node, addr})
	}
	return hosts, peers, nil
}

// End lets no new program start, and returns when those that run have ended or
// ctx has.
func (n *Node) End(ctx context.Context) {
	n.programsMu.Lock()
	n.endOnce.Do(func() { close(n.ending) })
	n.programsMu.Unlock()
	done := make(chan struct{})
	go func() { n.programs.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// beginProgram counts a program in, unless the job is ending or its VM has as
// many as the site allows.
func (n *Node) beginProgram(m *machine) error {
	n.programsMu.Lock()
	defer n.programsMu.Unlock()
	select {
	case <-n.ending:
		return fmt.Errorf("the VMs of job %d are ending; no program can be started any more", n.plan.Job.ID.Job)
	default:
	}
	if m.programs >= n.plan.Programs {
		return fmt.Errorf("%s runs %d programs already, the most that this site allows in a VM (limits.programs_per_vm)", m.plan.Name, m.programs)
	}
	m.programs++
	n.programs.Add(1)
	return nil
}

func (n *Node) endProgram(m *machine) {
	n.programsMu.Lock()
	defer n.programsMu.Unlock()
	m.programs--
	n.programs.Done()
}

// groupOf returns the gid in what Stat said.
func groupOf(info os.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Gid }
