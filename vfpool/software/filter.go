package software

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/bridgeport"
)

// The table of all VFs of the node as nft would print it, with one VF attached:
//
//	table bridge slurmv-vf {
//		map taps { type ifname : verdict; elements = { "svssoft0-0" : jump svssoft0-0 } }
//		map input { type ifname : verdict; elements = { "svssoft0-0" : jump svssoft0-0, "svubr0-2000" : drop } }
//		chain svssoft0-0 { …the rules of bridgeport.GuestRules… ; drop }
//		chain prerouting { type filter hook prerouting priority -200; iifname vmap @taps }
//		chain input { type filter hook input priority -200; iifname vmap @input }
//	}
//
// The bridge of a VLAN has no address of the host. Even so, Linux would take packets from
// it for any of the host's addresses; map input drops them. Frames that bridges send each
// other come through the hook input only.
const filterTable = "slurmv-vf"

// filter lets only those frames pass from the VF's port that its VM may send. It may be
// repeated: it keeps what exists, and empties the chain first.
func (p port) filter(at seat) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	table := conn.AddTable(ourTable)
	chain := conn.AddChain(&nftables.Chain{Table: table, Name: p.plug})
	conn.FlushChain(chain)
	for _, r := range bridgeport.GuestRules(p.mac) {
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: r})
	}
	own := jumpTo(p.plug)
	toHost := own
	if at.private {
		toHost = drop
	}
	if err := errors.Join(bridged.add(conn, table, p.plug, own), input.add(conn, table, p.plug, toHost)); err != nil {
		return err
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("make the filter of %s: %w", p.plug, bridgeport.Lacking(err, "nftables for bridges"))
	}
	return nil
}

// keepOffHost drops the frames from link that are for the host itself.
func keepOffHost(link string) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	if err := input.add(conn, conn.AddTable(ourTable), link, drop); err != nil {
		return err
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("keep what comes by %s off the host: %w", link, bridgeport.Lacking(err, "nftables for bridges"))
	}
	return nil
}

var ourTable = &nftables.Table{Family: nftables.TableFamilyBridge, Name: filterTable}

// A hook decides on frames by the link from which they came.
type hook struct {
	name   string
	number *nftables.ChainHook
	links  string // the map's name
}

var (
	bridged = hook{"prerouting", nftables.ChainHookPrerouting, "taps"}
	input   = hook{"input", nftables.ChainHookInput, "input"}

	hooks = []hook{bridged, input}
)

func (h hook) add(conn *nftables.Conn, table *nftables.Table, link string, verdict *expr.Verdict) error {
	links := h.set(table)
	if err := conn.AddSet(links, []nftables.SetElement{{Key: bridgeport.PortKey(link), VerdictData: verdict}}); err != nil {
		return fmt.Errorf("nftables map %s: %w", links.Name, err)
	}
	chain := conn.AddChain(&nftables.Chain{
		Table: table, Name: h.name,
		Type: nftables.ChainTypeFilter, Hooknum: h.number, Priority: nftables.ChainPriorityRef(-200),
	})
	conn.FlushChain(chain)
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: bridgeport.ByPort(links)})
	return nil
}

func (h hook) set(table *nftables.Table) *nftables.Set {
	return bridgeport.VerdictMap(table, h.links)
}

func jumpTo(chain string) *expr.Verdict {
	return &expr.Verdict{Kind: expr.VerdictJump, Chain: chain}
}

var drop = &expr.Verdict{Kind: expr.VerdictDrop}

// findTable returns nil if there is no table.
func findTable(conn *nftables.Conn) (*nftables.Table, error) {
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyBridge)
	if err != nil {
		return nil, fmt.Errorf("list nftables tables: %w", err)
	}
	for _, t := range tables {
		if t.Name == filterTable {
			return t, nil
		}
	}
	return nil, nil
}

// chains returns the chains of all VFs in the table.
func chains(conn *nftables.Conn) (found []*nftables.Chain, err error) {
	list, err := conn.ListChainsOfTableFamily(nftables.TableFamilyBridge)
	if err != nil {
		return nil, fmt.Errorf("list nftables chains: %w", err)
	}
	for _, c := range list {
		if c.Table.Name == filterTable && c.Hooknum == nil {
			found = append(found, c)
		}
	}
	return found, nil
}

// admitted returns the MAC address whose frames the filter of the port lets pass, or ""
// if there is no filter.
func admitted(plug string) (string, error) {
	conn, err := nftables.New()
	if err != nil {
		return "", err
	}
	table, err := findTable(conn)
	if err != nil || table == nil {
		return "", err
	}
	for _, h := range hooks {
		if there, err := h.has(conn, table, plug); err != nil || !there {
			return "", err
		}
	}
	rules, err := conn.GetRules(table, &nftables.Chain{Name: plug, Table: table})
	if err != nil {
		return "", fmt.Errorf("read the filter of %s: %w", plug, err)
	}
	return macIn(rules), nil
}

func (h hook) has(conn *nftables.Conn, table *nftables.Table, link string) (bool, error) {
	elements, err := conn.GetSetElements(h.set(table))
	if err != nil {
		// The error does not tell that there is no such map. The first VF brings it and the last one takes it away, whosever
		// these are.
		if there, asked := h.exists(conn); asked == nil && !there {
			return false, nil
		}
		return false, fmt.Errorf("read nftables map %s: %w", h.links, err)
	}
	return slices.ContainsFunc(elements, func(e nftables.SetElement) bool { return slices.Equal(e.Key, bridgeport.PortKey(link)) }), nil
}

// exists says whether the table has the hook's map.
func (h hook) exists(conn *nftables.Conn) (bool, error) {
	table, err := findTable(conn)
	if err != nil || table == nil {
		return false, err
	}
	maps, err := conn.GetSets(table)
	return slices.ContainsFunc(maps, func(s *nftables.Set) bool { return s.Name == h.links }), err
}

// macIn returns the MAC address in rules that GuestRules made.
func macIn(rules []*nftables.Rule) string {
	if len(rules) != len(bridgeport.GuestRules(nil)) {
		return ""
	}
	for _, e := range rules[0].Exprs {
		if compare, ok := e.(*expr.Cmp); ok {
			return net.HardwareAddr(compare.Data).String()
		}
	}
	return ""
}

// removeFilterOf removes a link, a VF's port or an uplink, from the table. If no other VF
// is in the table, it deletes the whole table.
func removeFilterOf(link string) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	table, err := findTable(conn)
	if err != nil || table == nil {
		return err
	}
	list, err := chains(conn)
	if err != nil {
		return err
	}
	own := slices.IndexFunc(list, func(c *nftables.Chain) bool { return c.Name == link })
	if len(list) == 0 || len(list) == 1 && own == 0 {
		conn.DelTable(table)
	} else if err := takeOut(conn, table, link, own >= 0); err != nil {
		return err
	}
	if err := conn.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete the filter of %s: %w", link, err)
	}
	return nil
}

// takeOut takes a link out of the maps, and then deletes its chain.
func takeOut(conn *nftables.Conn, table *nftables.Table, link string, hasChain bool) error {
	for _, h := range hooks {
		there, err := h.has(conn, table, link)
		if err != nil {
			return err
		}
		if !there {
			continue
		}
		if err := conn.SetDeleteElements(h.set(table), []nftables.SetElement{{Key: bridgeport.PortKey(link)}}); err != nil {
			return fmt.Errorf("nftables map %s: %w", h.links, err)
		}
	}
	if hasChain {
		chain := &nftables.Chain{Table: table, Name: link}
		conn.FlushChain(chain)
		conn.DelChain(chain)
	}
	return nil
}
