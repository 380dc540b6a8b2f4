package openstack

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/qos/policies"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/qos/rules"
)

// Rates are what a virtual function may send, in Mb/s: what it is sure of, and the most. 0 is no rate. neutron has them as
// a QoS policy with a rule for each. nova takes the first from what placement says that a host's cards have.
type Rates struct{ MinMbps, MaxMbps uint32 }

// egress is what a VM sends. Cards have no other rates of virtual functions.
const egress = "egress"

// HasRates reports whether the cloud's virtual functions can have rates: neutron has its service plugin qos.
func (c *Cloud) HasRates(ctx context.Context) (has bool, err error) {
	err = try(ctx, func() error {
		response, err := c.neutron.api.Get(ctx, c.neutron.api.ServiceURL("extensions", "qos"), nil, &gophercloud.RequestOpts{KeepResponseBody: true})
		if response != nil {
			_ = response.Body.Close()
		}
		has = err == nil
		if isGone(err) {
			return nil
		}
		return err
	})
	return has, explain("ask neutron for QoS", err)
}

// getPolicies makes a policy for each pair of rates in the request, and returns their ids.
func (n neutron) getPolicies(ctx context.Context, m mark, r Request) (map[Rates]string, error) {
	made := map[Rates]string{{}: ""}
	for _, s := range r.Servers {
		for _, vf := range s.VFs {
			if _, known := made[vf.Rates]; known {
				continue
			}
			id, err := n.createPolicy(ctx, m, vf.Rates)
			if err != nil {
				return nil, explain(fmt.Sprintf("create a QoS policy for %d to %d Mb/s", vf.MinMbps, vf.MaxMbps), err)
			}
			made[vf.Rates] = id
		}
	}
	return made, nil
}

// createPolicy makes a policy with its rules. Each step finds what an earlier try has made, whose answer was lost.
func (n neutron) createPolicy(ctx context.Context, m mark, rates Rates) (id string, err error) {
	name := fmt.Sprintf("slurmv-%s-%d-%d", m.job(), rates.MinMbps, rates.MaxMbps)
	id, err = makeOnce(ctx,
		func() (string, error) { return n.findPolicy(ctx, m, name) },
		func(ctx context.Context) (string, error) { return n.postPolicy(ctx, m, name) })
	if err != nil {
		return "", err
	}
	return id, n.createRules(ctx, id, rates)
}

func (n neutron) postPolicy(ctx context.Context, m mark, name string) (string, error) {
	made, err := policies.Create(ctx, n.api, policies.CreateOpts{Name: name, Description: string(m)}).Extract()
	if err != nil {
		return "", err
	}
	return made.ID, nil
}

// createRules gives a policy its rules, of which it has each kind once.
func (n neutron) createRules(ctx context.Context, policy string, rates Rates) error {
	const kilobits = 1000 // in a megabit
	most := rules.CreateBandwidthLimitRuleOpts{MaxKBps: int(rates.MaxMbps) * kilobits, Direction: egress}
	sure := rules.CreateMinimumBandwidthRuleOpts{MinKBps: int(rates.MinMbps) * kilobits, Direction: egress}
	if rates.MaxMbps > 0 {
		if err := there(ctx, func() error { return rules.CreateBandwidthLimitRule(ctx, n.api, policy, most).Err }); err != nil {
			return err
		}
	}
	if rates.MinMbps == 0 {
		return nil
	}
	return there(ctx, func() error { return rules.CreateMinimumBandwidthRule(ctx, n.api, policy, sure).Err })
}

// there makes something that an earlier try may have made.
func there(ctx context.Context, request func() error) error {
	return try(ctx, func() error {
		if err := request(); !gophercloud.ResponseCodeIs(err, http.StatusConflict) {
			return err
		}
		return nil
	})
}

func (n neutron) findPolicy(ctx context.Context, m mark, name string) (string, error) {
	its, err := n.policiesOf(ctx, m)
	for _, p := range its {
		if p.Name == name {
			return p.ID, nil
		}
	}
	return "", err
}

func (n neutron) policiesOf(ctx context.Context, m mark) ([]policies.Policy, error) {
	all, err := n.policies(ctx)
	return slices.DeleteFunc(all, func(p policies.Policy) bool { return p.Description != string(m) }), err
}

// policies returns those of the project; none if the cloud has no QoS.
func (n neutron) policies(ctx context.Context) ([]policies.Policy, error) {
	pages, err := policies.List(n.api, policies.ListOpts{ProjectID: n.project}).AllPages(ctx)
	if isGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return policies.ExtractPolicies(pages)
}

// deletePolicies comes after the ports that have them.
func (n neutron) deletePolicies(ctx context.Context, m mark) error {
	return removeAll(ctx, func() ([]policies.Policy, error) { return n.policiesOf(ctx, m) },
		func(p policies.Policy) error { return policies.Delete(ctx, n.api, p.ID).ExtractErr() })
}

func (n neutron) markedPolicies(ctx context.Context) (marks []string, err error) {
	all, err := n.policies(ctx)
	for _, p := range all {
		marks = append(marks, p.Description)
	}
	return marks, err
}
