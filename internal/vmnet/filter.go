package vmnet

import (
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/slurm-v/slurm-v/internal/bridgeport"
	"github.com/slurm-v/slurm-v/journal"
)

// The tables as nft would print them, for a job 4217.0 with two nodes and one VM on this
// node, the third VM of the job:
//
//	table bridge slurmv-4217-0 {
//		map taps { type ifname : verdict; elements = { "svt395-0" : jump svt395-0 } }
//		chain svt395-0 { …the rules of ownRules or GuestRules… ; drop }
//		chain prerouting { type filter hook prerouting priority -200; iifname vmap @taps }
//		map input { type ifname : verdict; elements = { "svt395-0" : drop, "svx395" : drop } }
//		chain input { type filter hook input priority -200; iifname vmap @input }
//	}
//	table ip slurmv-4217-0 {
//		set peers { type ipv4_addr; elements = { 10.0.0.2 } }
//		chain vxlan { type filter hook input priority 0;
//			udp dport 299 @th,96,24 4217 ip saddr != @peers drop }
//	}
//	table inet slurmv {
//		chain vxlan-299 { type filter hook output priority 0; udp dport 299 meta skuid != 0 drop }
//	}
//
// Each change is one transaction and may be repeated: existing tables, chains and sets
// stay, and a chain is emptied before its rules are added.

// A batch collects changes for one transaction.
type batch struct {
	conn *nftables.Conn
	err  error
}

func newBatch() (*batch, error) {
	conn, err := nftables.New()
	return &batch{conn: conn}, err
}

func (b *batch) commit() error {
	if b.err != nil {
		return b.err
	}
	if err := b.conn.Flush(); err != nil {
		return fmt.Errorf("change nftables: %w", err)
	}
	return nil
}

func (b *batch) table(family nftables.TableFamily, name string) *nftables.Table {
	return b.conn.AddTable(&nftables.Table{Family: family, Name: name})
}

// chain makes a chain with exactly these rules. Without a hook, other chains must jump to
// it.
func (b *batch) chain(table *nftables.Table, name string, hook *nftables.ChainHook, priority *nftables.ChainPriority, rules ...bridgeport.Rule) {
	chain := &nftables.Chain{Table: table, Name: name}
	if hook != nil {
		chain.Type, chain.Hooknum, chain.Priority = nftables.ChainTypeFilter, hook, priority
	}
	b.conn.AddChain(chain)
	b.conn.FlushChain(chain)
	for _, r := range rules {
		b.conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: r})
	}
}

func (b *batch) set(set *nftables.Set, elements ...nftables.SetElement) *nftables.Set {
	if err := b.conn.AddSet(set, elements); err != nil && b.err == nil {
		b.err = fmt.Errorf("nftables set %s: %w", set.Name, err)
	}
	return set
}

// filterTaps lets only those frames pass from the taps that their VMs may send.
func filterTaps(id journal.ID, taps []Tap) error {
	b, err := newBatch()
	if err != nil {
		return err
	}
	table := b.table(nftables.TableFamilyBridge, table(id))
	var bridged, toHost []nftables.SetElement
	for _, tap := range taps {
		verdict, hostVerdict := b.filterTap(table, tap.portName(id), tap)
		bridged, toHost = append(bridged, verdict), append(toHost, hostVerdict)
	}
	b.hooks(table, bridged, toHost)
	return b.commit()
}

// filterTap makes the chain of a tap's port. It returns the verdicts for frames that are
// bridged and for frames to the host.
func (b *batch) filterTap(table *nftables.Table, name string, tap Tap) (bridged, toHost nftables.SetElement) {
	jump := &expr.Verdict{Kind: expr.VerdictJump, Chain: name}
	verdict, rules := &expr.Verdict{Kind: expr.VerdictDrop}, ownRules(tap.MAC, tap.Address)
	if tap.Bridge != "" {
		// The host may have an address on its own bridge. Frames that bridges send each
		// other come through this hook only.
		verdict, rules = jump, bridgeport.GuestRules(tap.MAC)
	}
	b.chain(table, name, nil, nil, rules...)
	key := bridgeport.PortKey(name)
	return nftables.SetElement{Key: key, VerdictData: jump}, nftables.SetElement{Key: key, VerdictData: verdict}
}

// hooks makes the maps and chains that give frames from a port their verdict: before they
// are bridged, and before they reach the host.
func (b *batch) hooks(table *nftables.Table, bridged, toHost []nftables.SetElement) {
	taps := b.set(bridgeport.VerdictMap(table, "taps"), bridged...)
	b.chain(table, "prerouting", nftables.ChainHookPrerouting, nftables.ChainPriorityRef(-200), bridgeport.ByPort(taps))
	input := b.set(bridgeport.VerdictMap(table, "input"), toHost...)
	b.chain(table, "input", nftables.ChainHookInput, nftables.ChainPriorityRef(-200), bridgeport.ByPort(input))
}

// filterJob keeps three things out: frames of other nodes' VMs from this host, the job's
// VXLAN packets from the bridge until SetPeers names the peers, and users from the VXLAN
// port.
func filterJob(n Network) error {
	b, err := newBatch()
	if err != nil {
		return err
	}
	bridge := b.table(nftables.TableFamilyBridge, table(n.ID))
	b.hooks(bridge, nil, []nftables.SetElement{
		{Key: bridgeport.PortKey(VXLAN(n.ID.Job)), VerdictData: &expr.Verdict{Kind: expr.VerdictDrop}},
	})
	if n.Nodes > 1 {
		b.peers(n, nil)
		node := b.table(nftables.TableFamilyINet, "slurmv")
		b.chain(node, fmt.Sprintf("vxlan-%d", n.Port), nftables.ChainHookOutput, nftables.ChainPriorityFilter, rootOnly(n.Port))
	}
	return b.commit()
}

func filterPeers(n Network, peers []netip.Addr) error {
	b, err := newBatch()
	if err != nil {
		return err
	}
	b.peers(n, peers)
	return b.commit()
}

func (b *batch) peers(n Network, peers []netip.Addr) {
	t := b.table(nftables.TableFamilyIPv4, table(n.ID))
	var elements []nftables.SetElement
	for _, peer := range peers {
		elements = append(elements, nftables.SetElement{Key: peer.AsSlice()})
	}
	set := b.set(&nftables.Set{Table: t, Name: "peers", KeyType: nftables.TypeIPAddr}, elements...)
	b.chain(t, "vxlan", nftables.ChainHookInput, nftables.ChainPriorityFilter, notFromPeer(n, set))
}
