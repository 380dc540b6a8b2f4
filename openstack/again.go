package openstack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
)

// A lost server is one that nova has put into state ERROR for a reason that need not come again.
type lost struct {
	servers.Server

	fault string
}

// isPassing reports whether a fault need not come again: one of nova's services has died with the request, and another one has
// waited a minute for its answer (rpc_response_timeout), or nova did not reach neutron or glance.
func isPassing(fault string) bool {
	return strings.HasPrefix(fault, "MessagingTimeout") || strings.Contains(fault, "Unable to establish connection to ")
}

// requestServer asks for a server. [Cloud.replace] can ask for it once more.
func (c *Cloud) requestServer(ctx context.Context, m mark, w wanted) error {
	c.onceMore.Store(w.Name, w)
	return c.nova.createServer(ctx, m, w)
}

// replace deletes servers that nova has lost, and asks for each once more. The next one has the name and the ports of the first, so that
// must be gone.
func (c *Cloud) replace(ctx context.Context, m mark, all []lost) (err error) {
	var again []wanted
	for _, s := range all {
		w, first := c.onceMore.LoadAndDelete(s.Name)
		if !first {
			return fmt.Errorf("OpenStack: server %s: %s (nova was asked for it twice)", s.Name, s.fault)
		}
		again = append(again, w.(wanted))
	}
	if len(again) == 0 {
		return nil
	}
	listed := func() ([]servers.Server, error) {
		left, err := c.nova.listAgain(ctx, m)
		return slices.DeleteFunc(left, func(s servers.Server) bool {
			return !slices.ContainsFunc(again, func(w wanted) bool { return w.Name == s.Name })
		}), err
	}
	if err := c.nova.deleteListed(ctx, listed); err != nil {
		return explain("delete servers that have failed, such as "+again[0].Name+" ("+all[0].fault+")", err)
	}
	for _, w := range again {
		err = errors.Join(err, c.nova.createServer(ctx, m, w))
	}
	return err
}
