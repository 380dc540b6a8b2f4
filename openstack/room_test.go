package openstack

import (
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// novaWithRoom is a nova with three hosts, of which one is down and one disabled, and room for four more servers, and a
// neutron with room for nine more ports.
func novaWithRoom() answers {
	host := func(name, state, status string) map[string]any {
		return map[string]any{"id": name, "binary": "nova-compute", "host": name, "state": state, "status": status, "disabled_reason": "memory is exchanged"}
	}
	return answers{
		"os-services": {"services": []any{host("n1", "up", "enabled"), host("n2", "down", "enabled"), host("n3", "up", "disabled")}},
		"limits": {"limits": map[string]any{"absolute": map[string]any{
			"maxTotalInstances": 10, "totalInstancesUsed": 6, "maxTotalCores": 20, "totalCoresUsed": 12, "maxTotalRAMSize": -1, "totalRAMUsed": 99,
		}}},
		"quotas/site/details.json": {"quota": map[string]any{
			"network": map[string]any{"limit": 0, "used": 0, "reserved": 0}, "port": map[string]any{"limit": 20, "used": 10, "reserved": 1},
		}},
		"flavors/detail": {"flavors": []any{map[string]any{"id": "7", "name": "vm", "vcpus": 2, "ram": 1024, "disk": 0}}},
	}
}

// What is wrong with a job is told before its image is uploaded.
func TestAnUploadIsNotInVain(t *testing.T) {
	server := func(host string) Server { return Server{Name: "vm", Host: host} }
	good := Request{Job: "7.0", Flavor: "vm", VCPUs: 2, MemoryMiB: 1024, Network: "guests", Servers: []Server{server("n1"), server("n1"), server("n1"), server("n1")}}
	tells := true // neutron, what the project may have and has
	for name, tt := range map[string]struct {
		change func(*Request)
		want   string // "" is nothing wrong
	}{
		"all is well":     {func(*Request) {}, ""},
		"the flavor":      {func(r *Request) { r.Flavor = "none" }, `there is no flavor "none"`},
		"the flavor size": {func(r *Request) { r.MemoryMiB = 512 }, "all VMs of this site have 2 vCPUs"},
		"the network":     {func(r *Request) { r.Network = "none" }, `there is no network "none"`},
		"a host":          {func(r *Request) { r.Servers[1].Host = "n9" }, "nova has the job's nodes n1 as compute hosts, and not n9: choose nodes of one kind by --partition, --constraint or --exclude; "},
		"a host's state":  {func(r *Request) { r.Servers[1].Host = "n2" }, "nova-compute on host n2 is down"},
		"a host's status": {func(r *Request) { r.Servers[1].Host = "n3" }, "compute host n3 is disabled in nova (memory is exchanged)"},
		"the quota": {func(r *Request) { r.Servers = append(r.Servers, server("n1")) },
			"the project's quota is 10 servers, of which 6 are used, and the job needs 5\nthe project's quota is 20 vCPUs, of which 12 are used, and the job needs 10"},
		"as many ports as there are": {func(r *Request) { r.VFNetwork, r.Servers[0].VFs = "guests", make([]VF, 5) }, ""},
		"the quota of ports": {func(r *Request) { r.VFNetwork, r.Servers[0].VFs = "guests", make([]VF, 6) },
			"ask neutron for the ports of job 7.0: the project's quota is 20 ports, of which 11 are used, and the job needs 10"},
		"a neutron that tells no quota": {func(r *Request) { r.VFNetwork, r.Servers[0].VFs, tells = "guests", make([]VF, 6), false }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tells = true
			r, images := good, &faultyGlance{data: map[string]string{}}
			r.Servers, r.Image = append([]Server{}, good.Servers...), imageOf("an image")
			tt.change(&r)
			networks := map[string]any{"networks": []any{}}
			if r.Network == "guests" {
				networks["networks"] = []any{map[string]any{"id": "5", "name": "guests", "project_id": "site"}}
			}
			there := novaWithRoom()
			if !tells {
				delete(there, "quotas/site/details.json")
			}
			maps.Copy(there, answers{"networks": networks})
			c := &Cloud{label: "test", nova: nova{serviceOf(there)}, neutron: neutron{serviceOf(there)}, glance: glance{serviceOf(images)}}
			_, _, _, err := c.prepare(t.Context(), c.mark(r.Job), r)
			if tt.want == "" && (err != nil || images.puts != 1) {
				t.Errorf("%d uploads, %v", images.puts, err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || images.posts != 0) {
				t.Errorf("%d images made: %v", images.posts, err)
			}
		})
	}
}

// A job with nodes that nova does not have ends before anything is made for it, also if the cloud has its image.
func TestNodesOfBothKinds(t *testing.T) {
	const names = "nova-compute must have Slurm's name of the node (host in nova.conf)"
	for name, tt := range map[string]struct{ hosts, want string }{
		"one kind":      {"n1 n1", ""},
		"another order": {"n7 n1 n8 n1 n8", "nova has the job's nodes n1 as compute hosts, and not n7, n8: choose nodes of one kind by --partition, --constraint or --exclude; if all have OpenStack, " + names},
		"no host":       {"n7 n8", "nova has no compute host n7, n8: " + names},
		"a host's down": {"n1 n2", "nova-compute on host n2 is down"},
	} {
		t.Run(name, func(t *testing.T) {
			made := &countedPosts{to: novaWithRoom()}
			c := &Cloud{label: "test", nova: nova{serviceOf(made)}, neutron: neutron{serviceOf(made)}, glance: glance{serviceOf(made)}}
			r := Request{Job: "7.0", Image: Image{Name: "demo"}, VCPUs: 2, MemoryMiB: 1024, Network: "guests", VFNetwork: "guests"}
			for host := range strings.FieldsSeq(tt.hosts) {
				r.Servers = append(r.Servers, Server{Name: "vm", Host: host, VFs: []VF{{Rates: Rates{MaxMbps: 10}}}})
			}
			err := c.Create(t.Context(), r)
			if want := "OpenStack: ask nova for the hosts of job 7.0: " + tt.want; tt.want != "" && (err == nil || err.Error() != want || made.posts.Load() != 0) {
				t.Errorf("%d things made: %v", made.posts.Load(), err)
			}
			if tt.want == "" && made.posts.Load() == 0 {
				t.Errorf("a job with good hosts got nothing, so that others get nothing shows nothing: %v", err)
			}
		})
	}
}

// countedPosts counts what is asked to be made.
type countedPosts struct {
	to    http.RoundTripper
	posts atomic.Int32
}

func (c *countedPosts) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost {
		c.posts.Add(1)
	}
	return c.to.RoundTrip(r)
}
