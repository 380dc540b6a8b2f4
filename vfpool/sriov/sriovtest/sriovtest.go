// Package sriovtest makes nodes with SR-IOV network cards, for tests: a tree of
// files as sysfs and /dev have it, the kernel's answers to what is written there,
// and for each driver a model of what it lets a PF tell its VFs.
//
// All state is in the tree, so that several processes, and those that come after a
// killed one, see the same node ([Reopen]). [Node.OnEffect] makes any of the
// kernel's answers an error.
package sriovtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/internal/durable"
	"github.com/slurm-v/slurm-v/vfpool/sriov"
)

// A Card is one PF. The zero value of what is left out works.
type Card struct {
	Name       string // of its interface
	Driver     string
	InfiniBand bool
	Speed      uint32 // in Mb/s; 0 is 10000
	Down       bool
	NUMA       int
	TotalVFs   int // 0 is VFs
	VFs        int
	HostDriver string // that the VFs are bound to, "" for none

	OneGroup   bool // all its VFs are in one IOMMU group
	NoIOMMU    bool
	Switchdev  bool
	Unreadable bool // the kernel cannot list its VFs
	DCB        bool // data centre bridging is on, with which ice takes no minimum
	NoZeroMAC  bool // an old driver, which refuses the zero MAC
	HidesGUIDs bool // a kernel before 5.5, which does not report GUIDs
	DropsGUIDs bool // a driver that takes them and does nothing

	PKeys []uint16 // of the port, for mlx4; nil is those of usualPKeys

	PCI string // given by New, in the order of the cards
}

// A Node is a made-up node with these cards. The kernel's answers for its
// [sriov.Cards] are in two types of their own, kernel and rtnetlink.
type Node struct {
	tree
	cards []Card

	// OnEffect is called before everything that the kernel is asked to do or to
	// say, "set vlan", "read", "write reset", "own", "open", "end", "load"; its error is
	// the kernel's answer.
	OnEffect func(op string) error

	// OnEnd is called when the programs of a user that have a VF open are to end.
	OnEnd func(uid uint32)
}

// New makes a node with these cards below a directory of the test's.
func New(t testing.TB, cards ...Card) *Node {
	t.Helper()
	n := &Node{tree: tree{Root: t.TempDir()}}
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

// Reopen returns the node that another process has made below root.
func Reopen(root string) (*Node, error) {
	text, err := os.ReadFile(filepath.Join(root, "cards.json"))
	if err != nil {
		return nil, err
	}
	n := &Node{tree: tree{Root: root}}
	return n, json.Unmarshal(text, &n.cards)
}

// Open returns what is tested. It loses patience soon.
func (n *Node) Open() *sriov.Cards {
	cards := sriov.Open(n.Root, n.Links())
	cards.Kernel, cards.Patience = kernel{n}, time.Millisecond
	return cards
}

// Links is what the drivers of the node's cards do when told by rtnetlink, and say.
func (n *Node) Links() sriov.Links { return rtnetlink{n} }

// Snapshot says in a line per VF all that a job could leave behind.
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
	return fmt.Sprintf("%+v dirty=%v driver=%q override=%q group=%s%s", v.Settings, v.Dirty, filepath.Base(driver), override, bytes.TrimSpace(group), n.describeTables(pci))
}

// VF is the PCI address of a card's VF.
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

// Change changes a card that is there: its link, its driver's mood.
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

// Vanish takes a VF away, as when its card is reset.
func (n *Node) Vanish(pci string) error {
	link, err := os.Readlink(n.device(pci, "iommu_group"))
	if err == nil {
		group := filepath.Base(link)
		err = os.Remove(n.path("sys/kernel/iommu_groups", group, "devices", pci))
		_ = os.Remove(n.path("dev/vfio", group))
	}
	return firstError(err, os.RemoveAll(n.device(pci)), os.Remove(n.stateFile(pci)))
}

// Hold is a QEMU that uses the VF, until release is called or the process ends.
func (n *Node) Hold(pci string) (release func(), err error) {
	lock, err := durable.TryLock(n.groupFile(pci), 0)
	if err != nil {
		return nil, err
	}
	v, err := n.load(pci)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	v.Dirty = true
	return func() { lock.Close() }, n.save(pci, v)
}

func (n *Node) held(pci string) bool { return busy(n.groupFile(pci)) }

// Unload takes a driver away that nothing is bound to.
func (n *Node) Unload(module string) error {
	return os.RemoveAll(n.path("sys/bus/pci/drivers", module))
}

func (n *Node) effect(op string) error {
	if n.OnEffect == nil {
		return nil
	}
	return n.OnEffect(op)
}

// cardOf returns the card of a VF, by the VF's address, and its index there.
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
