package openstack

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"github.com/slurm-v/slurm-v/internal/concurrently"
)

// wanted is one server with the ids of what it is made of.
type wanted struct {
	Server

	image, flavor, zone string
	ports               []string
}

// body is the request for the server. gophercloud has no field for the host.
func (w wanted) body(m mark) map[string]any {
	networks := make([]map[string]string, len(w.ports))
	for i, id := range w.ports {
		networks[i] = map[string]string{"port": id}
	}
	server := map[string]any{
		"name": w.Name, "imageRef": w.image, "flavorRef": w.flavor, "networks": networks,
		"host": w.Host, "tags": []string{string(m)}, "config_drive": true,
		"metadata": map[string]string{markKey: string(m), nodeKey: w.Host},
	}
	if w.zone != "" {
		server["availability_zone"] = w.zone
	}
	return map[string]any{"server": server}
}

// createServer asks for a server. An answer that is lost does not make a second one: names
// are unique, so a server of this name is this one.
func (n nova) createServer(ctx context.Context, m mark, w wanted) error {
	_, err := makeOnce(ctx,
		func() (string, error) { return n.findServer(ctx, m, w.Name) },
		func(ctx context.Context) (string, error) { return n.postServer(ctx, w.body(m)) })
	return explain(fmt.Sprintf("create server %s on host %s", w.Name, w.Host), err)
}

func (n nova) postServer(ctx context.Context, body map[string]any) (string, error) {
	var made struct{ Server struct{ ID string } }
	err := n.post(ctx, "servers", body, &made)
	return made.Server.ID, err
}

func (n nova) findServer(ctx context.Context, m mark, name string) (string, error) {
	all, err := n.list(ctx, m)
	for _, s := range all {
		if s.Name == name {
			return s.ID, nil
		}
	}
	return "", err
}

// list returns the job's servers, in any state. It does not ask for them by their tags: nova
// leaves out servers that it has not begun to schedule then.
func (n nova) list(ctx context.Context, m mark) (its []servers.Server, err error) {
	pages, err := servers.List(n.api, servers.ListOpts{Name: "^" + regexp.QuoteMeta(namePrefix(m.job()))}).AllPages(ctx)
	if err != nil {
		return nil, err
	}
	all, err := servers.ExtractServers(pages)
	return slices.DeleteFunc(all, func(s servers.Server) bool { return s.Metadata[markKey] != string(m) }), err
}

// namePrefix is what the names of a job's servers begin with.
func namePrefix(job string) string { return "slurmv-" + job + "-" }

// untilNextLook is the pause between two looks at a job's servers, after having waited so long: an eighth of it. Each
// look is a query of nova's database, and many jobs may wait at once.
func untilNextLook(waited time.Duration) time.Duration {
	return min(max(waited/8, 500*time.Millisecond), 5*time.Second)
}

// countActive returns how many of the servers run, which are lost, and an error if another one never will run.
func (n nova) countActive(ctx context.Context, all []servers.Server) (active int, again []lost, err error) {
	for _, s := range all {
		switch s.Status {
		case "ACTIVE":
			active++
		case "ERROR":
			fault := withCause(n.fault(ctx, s.ID), s.Metadata[nodeKey])
			if isPassing(fault) {
				again = append(again, lost{s, fault})
				continue
			}
			err = errors.Join(err, fmt.Errorf("OpenStack: server %s: %s", s.Name, fault))
		case "DELETED", "SOFT_DELETED", "SHUTOFF":
			err = errors.Join(err, fmt.Errorf("OpenStack: server %s is %s: somebody has ended it", s.Name, s.Status))
		}
	}
	return active, again, err
}

// fault is why a server is in state ERROR. The list of servers does not tell.
func (n nova) fault(ctx context.Context, id string) string {
	var s *servers.Server
	err := try(ctx, func() (err error) {
		s, err = servers.Get(ctx, n.api, id).Extract()
		return err
	})
	switch {
	case err != nil:
		return "nova put it into state ERROR, and does not tell why: " + err.Error()
	case s.Fault.Message == "":
		return "nova put it into state ERROR without a reason"
	}
	return strings.TrimSpace(s.Fault.Message)
}

// withCause adds to a fault that has no cause what the cause can be, or where it is. A server may run on its node only: so if
// nova finds no host, the node has no room. By default nova looks for another host when a host could not start a server; there
// is none, and nova tells this instead of what the host has said.
func withCause(fault, node string) string {
	switch {
	case strings.HasPrefix(fault, "No valid host was found"):
		return fault + " (Node " + node + " has too little left of what the VM needs: CPUs, memory, disk, virtual functions or their bandwidth. Or nova-compute is disabled there.)"
	case strings.HasPrefix(fault, "Exceeded maximum number of retries"):
		return fault + " (The cause is in the log of nova-compute on node " + node + ". Where nova.conf has max_attempts = 1 in [scheduler], it is told here.)"
	}
	return fault
}

// nodeKey is the name of the node in the metadata of servers: nova does not tell it of one that it has found no host for.
const nodeKey = "slurm-v-node"

// deleteServers deletes the job's servers and waits until nova lists none. Ports that are made for
// a server survive it, and would keep its place in the network.
func (n nova) deleteServers(ctx context.Context, m mark) error {
	return n.deleteListed(ctx, func() ([]servers.Server, error) { return n.listAgain(ctx, m) })
}

// deleteListed deletes servers until there are none. Servers that nova cannot delete
// are given up when none has gone for as long as the cloud may be away, and those that it refuses
// to delete when no others are left: others wait.
func (n nova) deleteListed(ctx context.Context, list func() ([]servers.Server, error)) error {
	began, asked := time.Now(), map[string]*deletion{}
	fewest, since := math.MaxInt, began
	for {
		left, err := list()
		if err != nil || len(left) == 0 {
			return err
		}
		n.askToDelete(ctx, left, asked)
		if err := refusal(left, asked); err != nil {
			return err
		}
		if len(left) < fewest {
			fewest, since = len(left), time.Now()
		}
		if time.Since(since) > outage {
			return fmt.Errorf("nova still has %s: none has gone for %v, though it was asked several times", names(left), outage)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nova still has %s: %w", names(left), context.Cause(ctx))
		case <-time.After(untilNextLook(time.Since(began))):
		}
	}
}

// listAgain is list, also of a nova that is away for a while.
func (n nova) listAgain(ctx context.Context, m mark) (its []servers.Server, err error) {
	err = try(ctx, func() (err error) {
		its, err = n.list(ctx, m)
		return err
	})
	return its, err
}

// A deletion is when nova was asked last to delete a server, and why it refused.
type deletion struct {
	asked   time.Time
	refused error
}

// askToDelete asks nova to delete each of the servers, unless it was asked a moment ago or has refused. One that is
// refused keeps no other from being deleted.
func (n nova) askToDelete(ctx context.Context, left []servers.Server, asked map[string]*deletion) {
	var due []servers.Server
	for _, s := range left {
		if asked[s.ID] == nil {
			asked[s.ID] = &deletion{}
		}
		if last := asked[s.ID]; last.refused == nil && time.Since(last.asked) > askAgain {
			due = append(due, s)
		}
	}
	concurrently.Each(due, requestsAtOnce, func(s servers.Server) error {
		err := gone(ctx, func() error { return servers.Delete(ctx, n.api, s.ID).ExtractErr() })
		*asked[s.ID] = deletion{asked: time.Now(), refused: err}
		return nil
	})
}

// refusal says why nova deletes none of the servers that are left, in its words about the first. It is nil while nova may
// still delete one.
func refusal(left []servers.Server, asked map[string]*deletion) error {
	if slices.ContainsFunc(left, func(s servers.Server) bool { return asked[s.ID].refused == nil }) {
		return nil
	}
	others := ""
	if more := len(left) - 1; more > 0 {
		others = fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("server %s%s: %w", left[0].Name, others, said(asked[left[0].ID].refused))
}

func (n nova) markedServers(ctx context.Context) (marks []string, err error) {
	pages, err := servers.List(n.api, servers.ListOpts{}).AllPages(ctx)
	if err != nil {
		return nil, err
	}
	all, err := servers.ExtractServers(pages)
	for _, s := range all {
		marks = append(marks, s.Metadata[markKey])
	}
	return marks, err
}

func names(all []servers.Server) string {
	var names []string
	for _, s := range all {
		names = append(names, fmt.Sprintf("%s (%s)", s.Name, s.Status))
	}
	return strings.Join(names, ", ")
}

// askAgain is how long nova may take to delete a server before it is asked once more: it
// loses such a request if nova-compute is killed.
const askAgain = 20 * time.Second
