package openstack

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
)

// lostByNova is what the fault of a server begins with if one of nova's services has died with the request for it: another one has
// waited a minute for the answer (rpc_response_timeout).
const lostByNova = "MessagingTimeout"

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
func (c *Cloud) replace(ctx context.Context, m mark, lost []servers.Server) (err error) {
	for _, s := range lost {
		request := c.second.take(s.Name)
		if request == nil {
			err = errors.Join(err, fmt.Errorf("OpenStack: server %s: %s: one of nova's services has died with the request for it, twice; see nova's logs", s.Name, lostByNova))
			continue
		}
		if failed := c.nova.deleteLost(ctx, m, s); failed != nil {
			err = errors.Join(err, explain("delete server "+s.Name+", which nova has lost", failed))
			continue
		}
		err = errors.Join(err, request(ctx))
	}
	return err
}

// deleteLost returns when nova lists the server no more: the next one has its name and its ports.
func (n nova) deleteLost(ctx context.Context, m mark, s servers.Server) error {
	if err := gone(ctx, func() error { return servers.Delete(ctx, n.api, s.ID).ExtractErr() }); err != nil {
		return err
	}
	for began := time.Now(); ; {
		var id string
		err := try(ctx, func() (err error) {
			id, err = n.findServer(ctx, m, s.Name)
			return err
		})
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
