package openstack

import (
	"context"
	"fmt"
	"slices"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
)

// findNetwork returns the id of a network.
func (n neutron) findNetwork(ctx context.Context, nameOrID string) (id string, err error) {
	err = try(ctx, func() error {
		for _, by := range []networks.ListOpts{{Name: nameOrID}, {ID: nameOrID}} {
			pages, err := networks.List(n.api, by).AllPages(ctx)
			if err != nil {
				return err
			}
			found, err := networks.ExtractNetworks(pages)
			if err != nil {
				return err
			}
			// An administrator sees the networks of every project.
			found = slices.DeleteFunc(found, func(network networks.Network) bool { return !network.Shared && network.ProjectID != n.project })
			if len(found) == 1 {
				id = found[0].ID
				return nil
			}
			if len(found) > 1 {
				return fmt.Errorf("there are %d networks called %q: write the id of one into slurmv.toml", len(found), nameOrID)
			}
		}
		return fmt.Errorf("there is no network %q", nameOrID)
	})
	return id, explain("find the network of the VMs", err)
}

// createPorts makes the ports of a server: its NIC, and its virtual functions.
func (n neutron) createPorts(ctx context.Context, m mark, on networksOf, s Server) (ids []string, err error) {
	id, err := n.createPort(ctx, m, s, port{network: on.nic, mac: s.MAC, kind: "normal"})
	ids = append(ids, id)
	for _, vf := range s.VFs {
		if err == nil {
			id, err = n.createPort(ctx, m, s, port{network: on.vf, mac: vf.MAC, kind: "direct", policy: on.policies[vf.Rates]})
			ids = append(ids, id)
		}
	}
	return ids, err
}

// A port is what a server's port differs in from others.
type port struct {
	network, mac string
	kind         string // binding:vnic_type
	policy       string // id of its QoS policy; "" is none
}

// createPort makes a port. neutron allows a MAC address once in a network, so a port whose
// answer was lost is found by it.
func (n neutron) createPort(ctx context.Context, m mark, s Server, p port) (id string, err error) {
	wanted := map[string]any{
		"name": s.Name, "network_id": p.network, "mac_address": p.mac, "description": string(m),
		"binding:vnic_type": p.kind,
	}
	if p.policy != "" {
		wanted["qos_policy_id"] = p.policy
	}
	id, err = makeOnce(ctx,
		func() (string, error) { return n.findPort(ctx, m, p.mac) },
		func(ctx context.Context) (string, error) { return n.postPort(ctx, wanted) })
	return id, explain(fmt.Sprintf("create a port (%s) for server %s", p.kind, s.Name), err)
}

func (n neutron) postPort(ctx context.Context, port map[string]any) (string, error) {
	var made struct{ Port struct{ ID string } }
	err := n.post(ctx, "ports", map[string]any{"port": port}, &made)
	return made.Port.ID, err
}

func (n neutron) findPort(ctx context.Context, m mark, mac string) (string, error) {
	its, err := n.portsOf(ctx, m)
	for _, p := range its {
		if p.MACAddress == mac {
			return p.ID, nil
		}
	}
	return "", err
}

func (n neutron) portsOf(ctx context.Context, m mark) ([]ports.Port, error) {
	pages, err := ports.List(n.api, ports.ListOpts{Description: string(m)}).AllPages(ctx)
	if err != nil {
		return nil, err
	}
	all, err := ports.ExtractPorts(pages)
	return slices.DeleteFunc(all, func(p ports.Port) bool { return p.ProjectID != n.project }), err
}

func (n neutron) deletePorts(ctx context.Context, m mark) error {
	return removeAll(ctx, func() ([]ports.Port, error) { return n.portsOf(ctx, m) },
		func(p ports.Port) error { return ports.Delete(ctx, n.api, p.ID).ExtractErr() })
}

func (n neutron) markedPorts(ctx context.Context) (marks []string, err error) {
	pages, err := ports.List(n.api, ports.ListOpts{ProjectID: n.project}).AllPages(ctx)
	if err != nil {
		return nil, err
	}
	all, err := ports.ExtractPorts(pages)
	for _, p := range all {
		marks = append(marks, p.Description)
	}
	return marks, err
}
