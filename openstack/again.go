package openstack

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

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

// A secondChance has the requests for servers that can still be made once more.
type secondChance struct {
	mu       sync.Mutex
	requests map[string]func(context.Context) error // by the server's name
}

func (s *secondChance) keep(name string, request func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests == nil {
		s.requests = map[string]func(context.Context) error{}
	}
	s.requests[name] = request
}

// take returns the request, and nil if it was taken before.
func (s *secondChance) take(name string) func(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	request := s.requests[name]
	delete(s.requests, name)
	return request
}

// requestServer asks for a server. [Cloud.replace] can ask for it once more.
func (c *Cloud) requestServer(ctx context.Context, m mark, w wanted) error {
	request := func(ctx context.Context) error { return c.nova.createServer(ctx, m, w) }
	c.second.keep(w.Name, request)
	return request(ctx)
}

// replace deletes servers that nova has lost, and asks for each once more.
func (c *Cloud) replace(ctx context.Context, m mark, all []lost) (err error) {
	for _, s := range all {
		request := c.second.take(s.Name)
		if request == nil {
			err = errors.Join(err, fmt.Errorf("OpenStack: server %s: %s (nova was asked for it twice)", s.Name, s.fault))
			continue
		}
		if failed := c.nova.deleteLost(ctx, m, s); failed != nil {
			err = errors.Join(err, explain(fmt.Sprintf("delete server %s, which failed (%s)", s.Name, s.fault), failed))
			continue
		}
		err = errors.Join(err, request(ctx))
	}
	return err
}

// deleteLost returns when nova lists the server no more: the next one has its name and its ports.
func (n nova) deleteLost(ctx context.Context, m mark, s lost) error {
	var asked time.Time
	for began := time.Now(); ; {
		var id string
		err := try(ctx, func() (err error) {
			id, err = n.findServer(ctx, m, s.Name)
			return err
		})
		if err == nil && id != "" && time.Since(asked) > askAgain {
			err, asked = gone(ctx, func() error { return servers.Delete(ctx, n.api, id).ExtractErr() }), time.Now()
		}
		if err != nil || id == "" {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(untilNextLook(time.Since(began))):
		}
	}
}
