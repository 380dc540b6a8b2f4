// Package machine is the VMs of a job on one node while they live: the stages through
// which each comes up, the session with its guest, its console, and why it ended.
//
// A [Set] is all of them. Package vmlaunch starts the machines of a Set, and package
// serve lets callers at them.
package machine

import (
	"fmt"
	"net/netip"
	"path/filepath"
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

// A Machine is one VM, from when it is planned until it has ended.
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
	stop      string // why the guest ended by itself
	restoring bool   // its end would not be the job's
}

// New is the machine that vm becomes. What happens to it is told to record.
func New(vm plan.VM, record *Trace) *Machine {
	return &Machine{Plan: vm, trace: record, address: vm.Address}
}

// Close ends the session and the recording of the console. The VM goes on.
func (m *Machine) Close() {
	m.EndSession()
	m.CloseConsole()
}

// OpenConsole begins to record the console to a file of the directory logs.
func (m *Machine) OpenConsole(logs string) (err error) {
	m.Console, err = openConsole(m.Plan.Console, filepath.Join(logs, m.Plan.Name+".console"))
	return err
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

// Failure is the sentence about a VM that has ended by itself; nil while it runs. node is
// the one that it ran on.
func (m *Machine) Failure(node string) error {
	if why := m.StopReason(); why != "" {
		return fmt.Errorf("%s on node %s %s", m.Plan.Name, node, why)
	}
	return nil
}

// stopped notes why the VM ended, and reports whether its end is the job's.
func (m *Machine) stopped(reason string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stop = reason
	return !m.restoring
}

// Restoring begins the time in which the end of the VM is not the job's: it can still be
// booted. [Machine.Restored] ends that time.
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

// Restored ends the time that [Machine.Restoring] began. It is an error if the VM has
// ended meanwhile.
func (m *Machine) Restored() (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stop != "" {
		err = fmt.Errorf("the restored VM %s", m.stop)
	}
	m.restoring, m.stop = false, ""
	return err
}

// Enter records that the VM goes into a stage of its launch, and tells its user.
func (m *Machine) Enter(stage string) {
	m.Pass(stage)
	m.Tell(stage)
}

// Pass is [Machine.Enter] for stages that are as good as over when somebody reads of them.
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

// Tell shows the job's user what the VM waits for.
func (m *Machine) Tell(stage string) {
	m.trace.Progress(vmstep.Progress{VM: m.Plan.Number, Stage: stage, Millis: m.trace.Clock.Now().Milliseconds()})
}

// Adopt keeps what the guest has reported: the address that the DHCP server of the site's
// network has given it. The planned address, where there is one, counts whatever the guest
// says.
func (m *Machine) Adopt(report guest.Report, network string) error {
	m.trace.Log.Info("guest reported", "vm", m.Plan.Name, "report", report)
	if m.Plan.Address.IsValid() {
		return nil
	}
	for _, a := range report.Addresses {
		if prefix, err := netip.ParsePrefix(a.CIDR); err == nil && prefix.Addr().Is4() && a.MAC == m.Plan.MAC {
			m.mu.Lock()
			m.address = prefix
			m.mu.Unlock()
			return nil
		}
	}
	return fmt.Errorf("the guest got no IPv4 address from the site's DHCP server on network %s", network)
}

// Describe is what other nodes and people see of the VM.
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
