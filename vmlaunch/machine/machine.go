// Package machine is about a job's VMs on one node while they live: the stages through
// which each comes up, the session with its guest, its console, and why it ended.
//
// A [Set] has all VMs of the job on the node. Package vmlaunch starts the machines of a
// Set, and package serve lets callers reach them.
package machine

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/cpulist"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/vfpool"
	"github.com/slurm-v/slurm-v/vmlaunch/hypervisor"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmstep"
)

// A Machine is one VM, from its plan to its end.
type Machine struct {
	Plan    plan.VM
	VFs     []vfpool.Grant
	Domain  *hypervisor.Domain // nil until it is defined
	Console *Console           // nil until it is open

	trace *Trace
	meter *guest.Meter // of its clock; nil before there is a session

	mu        sync.Mutex
	session   *guest.Session
	address   netip.Prefix
	stages    []nodeagent.Stage
	state     string
	since     time.Duration // of the stage, on the record's clock
	clockRate *nodeagent.Clock
	stop      string        // why the guest ended by itself; "" while it runs
	ended     chan struct{} // closed when the guest has ended by itself
	restoring bool          // if the VM ends now, the job goes on
}

// New is the machine of vm. It reports its stages and its end to trace.
func New(vm plan.VM, trace *Trace) *Machine {
	return &Machine{Plan: vm, trace: trace, address: vm.Address, ended: make(chan struct{})}
}

// Close ends the session and the recording of the console. The VM keeps running.
func (m *Machine) Close() {
	m.EndSession()
	m.CloseConsole()
}

// CloseConsole ends the recording, if there is one.
func (m *Machine) CloseConsole() {
	if m.Console != nil {
		_ = m.Console.Close()
	}
}

// SetSession keeps the session with the VM's guest agent.
func (m *Machine) SetSession(s *guest.Session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.session = s
}

// Session is the session with the VM's guest agent; nil before there is one.
func (m *Machine) Session() *guest.Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.session
}

// EndSession ends the session, and with it all programs of the VM.
func (m *Machine) EndSession() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.session != nil {
		_ = m.session.Close()
	}
}

// StopReason is why the VM ended by itself; "" while it runs.
func (m *Machine) StopReason() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stop
}

// Ended is closed when the VM has ended by itself. After [Machine.Restored] it is another channel.
func (m *Machine) Ended() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ended
}

// Failure is a sentence about a VM that has ended by itself; nil while it runs. node is the
// VM's node.
func (m *Machine) Failure(node string) error {
	if why := m.StopReason(); why != "" {
		return fmt.Errorf("%s on node %s %s", m.Plan.Name, node, why)
	}
	return nil
}

// stopped notes why the VM ended, and reports whether the job ends with it. The first reason is the cause of others.
func (m *Machine) stopped(reason string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stop == "" {
		m.stop = reason
		close(m.ended)
	}
	return !m.restoring
}

// Restoring begins the time in which the job survives the VM's end, because the VM can
// still be booted. [Machine.Restored] ends this time.
func (m *Machine) Restoring() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.restoring = true
}

// IsRestoring reports whether the VM is being restored.
func (m *Machine) IsRestoring() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.restoring
}

// Restored ends the time that [Machine.Restoring] began. It returns an error if the VM has
// ended meanwhile.
func (m *Machine) Restored() (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stop != "" {
		err = fmt.Errorf("the restored VM %s", m.stop)
		m.ended = make(chan struct{})
	}
	m.restoring, m.stop = false, ""
	return err
}

// Enter records that the VM enters a stage of its launch, and tells the user.
func (m *Machine) Enter(stage string) {
	m.Pass(stage)
	m.Tell(stage)
}

// Pass is [Machine.Enter] without telling the user: the stage is so short that it would be
// over when the user reads of it.
func (m *Machine) Pass(stage string) {
	now := m.trace.Clock.Now()
	m.mu.Lock()
	if m.state != "" {
		m.stages = append(m.stages, nodeagent.Stage{Name: m.state, Start: m.since, End: now})
	}
	m.state, m.since = stage, now
	m.mu.Unlock()
	m.trace.Log.Info("stage", "vm", m.Plan.Name, "stage", stage)
}

// Tell tells the user which stage the VM is in.
func (m *Machine) Tell(stage string) {
	m.trace.Progress(vmstep.Progress{VM: m.Plan.Number, Stage: stage, Millis: m.trace.Clock.Now().Milliseconds()})
}

// Adopt keeps the address that the guest has got from the DHCP server of the site's
// network. If the plan has an address, it ignores the guest's report.
func (m *Machine) Adopt(report guest.Report, network string) error {
	m.trace.Log.Info("guest reported", "vm", m.Plan.Name, "report", report)
	if m.Address().IsValid() {
		return nil
	}
	for _, a := range report.Addresses {
		if prefix, err := netip.ParsePrefix(a.CIDR); err == nil && prefix.Addr().Is4() && a.MAC == m.Plan.MAC {
			m.SetAddress(prefix)
			return nil
		}
	}
	return fmt.Errorf("the guest got no IPv4 address from the site's DHCP server on network %s", network)
}

// Address is the address of the VM's first NIC; invalid as long as it is not known.
func (m *Machine) Address() netip.Prefix {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.address
}

// SetAddress keeps an address that the plan does not know.
func (m *Machine) SetAddress(address netip.Prefix) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.address = address
}

// Describe describes the VM to other nodes and to people.
func (m *Machine) Describe() nodeagent.VM {
	m.mu.Lock()
	defer m.mu.Unlock()
	vm := nodeagent.VM{
		Number: m.Plan.Number, Index: m.Plan.Index, Name: m.Plan.Name,
		MAC: m.Plan.MAC, State: m.state, Stages: append([]nodeagent.Stage(nil), m.stages...),
		CPUs: cpulist.Format(m.Plan.Pinning.CPUs()), EmulatorCPUs: cpulist.Format(m.Plan.Pinning.Emulator),
		Clock: m.clockRate,
	}
	if m.address.IsValid() {
		vm.Address = m.address.Addr().String()
	}
	if m.stop != "" {
		vm.State, vm.Cause = nodeagent.StateOff, m.stop
	}
	return vm
}
