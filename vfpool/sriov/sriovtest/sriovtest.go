// Package sriovtest makes nodes with SR-IOV network cards, for tests. A node has a tree
// of files as in sysfs and /dev, the kernel's reactions to values written there, and for
// each driver a model of the settings that it accepts for VFs.
//
// All state is in the tree, so that several processes, and the successor of a killed one,
// see the same node ([Reopen]). [Node.OnEffect] can turn any of the kernel's answers into
// an error.
package sriovtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vfpool/sriov"
)

// A Card is one PF. Fields that are left out have usable defaults.
type Card struct {
	Name       string // of its interface
	Driver     string
	InfiniBand bool
	Speed      uint32 // in Mb/s; 0 is 10000
	Down       bool
	NUMA       int
	TotalVFs   int // that it could have; 0 is VFs
	VFs        int
	HostDriver string // that the VFs are bound to; "" without a driver

	OneGroup   bool // all its VFs are in one IOMMU group
	NoIOMMU    bool
	Switchdev  bool
	Unreadable bool // the kernel cannot list its VFs
	DCB        bool // data centre bridging is on: ice then takes no minimum
	NoZeroMAC  bool // an old driver, which refuses the zero MAC

	PCI string // given by New, in the order of the cards
}

// A Node is a made-up machine. It is the Links and the Host of its sriov.Node.
type Node struct {
	Root  string
	cards []Card

	// OnEffect is called before each request to the kernel, with the request's name: "set
	// vlan", "read", "write reset", "own", "open", "end", "load". Its error is the
	// kernel's answer.
	OnEffect func(op string) error

	// OnEnd is called when the programs of user uid that have a VF open should end.
	OnEnd func(uid uint32)
}

// New makes a node with these cards in a temporary directory of the test.
func New(t testing.TB, cards ...Card) *Node {
	t.Helper()
	n := &Node{Root: t.TempDir()}
	for i, c := range cards {
		n.cards = append(n.cards, c.complete(i))
	}
	if err := n.build(); err != nil {
		t.Fatal(err)
	}
	return n
}

func (c Card) complete(i int) Card {
	c.PCI = fmt.Sprintf("0000:%02x:00.0", 1+4*i)
	if c.Speed == 0 {
		c.Speed = 10000
	}
	if c.TotalVFs == 0 {
		c.TotalVFs = c.VFs
	}
	return c
}

// Reopen returns the node that another process has made at root.
func Reopen(root string) (*Node, error) {
	text, err := os.ReadFile(filepath.Join(root, "cards.json"))
	if err != nil {
		return nil, err
	}
	n := &Node{Root: root}
	return n, json.Unmarshal(text, &n.cards)
}

// Open returns the node under test. Its Patience is short.
func (n *Node) Open() *sriov.Node {
	node := sriov.Open(n.Root, n)
	node.Host, node.Patience = n, time.Millisecond
	return node
}

// Snapshot lists, in a line per VF, everything that a job could leave behind.
func (n *Node) Snapshot(t testing.TB) string {
	t.Helper()
	var lines []string
	for _, c := range n.cards {
		for i := range c.VFs {
			lines = append(lines, fmt.Sprintf("%s %d %s", c.Name, i, n.describe(c.VF(i))))
		}
	}
	return strings.Join(lines, "\n")
}

func (n *Node) describe(pci string) string {
	v, err := n.load(pci)
	if err != nil {
		return "gone"
	}
	override, _ := os.ReadFile(n.device(pci, "driver_override"))
	driver, _ := os.Readlink(n.device(pci, "driver"))
	group, _ := os.ReadFile(n.groupFile(pci))
	return fmt.Sprintf("%+v dirty=%v driver=%q override=%q group=%s", v.Settings, v.Dirty, filepath.Base(driver), override, bytes.TrimSpace(group))
}

// VF returns the PCI address of a card's VF.
func (c Card) VF(index int) string {
	var bus int
	if _, err := fmt.Sscanf(c.PCI, "0000:%x:", &bus); err != nil {
		panic(err)
	}
	devfn := 0x80 + index
	return fmt.Sprintf("0000:%02x:%02x.%d", bus+devfn>>8, devfn>>3&0x1f, devfn&7)
}

// Card returns the card with that name.
func (n *Node) Card(name string) Card {
	for _, c := range n.cards {
		if c.Name == name {
			return c
		}
	}
	panic("no card " + name)
}

// Change changes an existing card, for instance its link.
func (n *Node) Change(t testing.TB, name string, change func(*Card)) {
	t.Helper()
	for i := range n.cards {
		if n.cards[i].Name == name {
			change(&n.cards[i])
			if err := n.buildPF(n.cards[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := n.saveCards(); err != nil {
		t.Fatal(err)
	}
}

// Vanish removes a VF, as when its card is reset.
func (n *Node) Vanish(pci string) error {
	link, err := os.Readlink(n.device(pci, "iommu_group"))
	if err == nil {
		group := filepath.Base(link)
		err = os.Remove(n.path("sys/kernel/iommu_groups", group, "devices", pci))
		_ = os.Remove(n.path("dev/vfio", group))
	}
	return firstError(err, os.RemoveAll(n.device(pci)), os.Remove(n.stateFile(pci)))
}

func (n *Node) path(elements ...string) string {
	return filepath.Join(append([]string{n.Root}, elements...)...)
}

func (n *Node) device(pci string, file ...string) string {
	return n.path(append([]string{"sys/bus/pci/devices", pci}, file...)...)
}

// A vf is the state of a VF that sysfs does not show.
type vf struct {
	Settings device.Settings
	Dirty    bool // a guest has left something in it
	Busy     int  // how often it will still answer that it is busy
}

func (n *Node) stateFile(pci string) string { return n.path("vfs", pci+".json") }

func (n *Node) load(pci string) (v vf, err error) {
	text, err := os.ReadFile(n.stateFile(pci))
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal(text, &v)
}

func (n *Node) save(pci string, v vf) error { return writeJSON(n.stateFile(pci), v) }

// writeJSON writes value in place, in one write of a fixed length: the process may be
// killed before or after it, and a guest may have the file open.
func writeJSON(path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(file, "%-400s", text)
	return firstError(err, file.Close())
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) effect(op string) error {
	if n.OnEffect == nil {
		return nil
	}
	return n.OnEffect(op)
}

// vfs of one card, by address.
func (n *Node) cardOf(pci string) (Card, int, bool) {
	for _, c := range n.cards {
		for i := range c.VFs {
			if c.VF(i) == pci {
				return c, i, true
			}
		}
	}
	return Card{}, 0, false
}

var _ sriov.Links = (*Node)(nil)
var _ sriov.Host = (*Node)(nil)
