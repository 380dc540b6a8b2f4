package openstack

import (
	"maps"
	"strings"
	"testing"
)

// novaWithRoom is a nova with two hosts, of which one is down, and room for four more servers.
func novaWithRoom() answers {
	host := func(name, state, status string) map[string]any {
		return map[string]any{"id": name, "binary": "nova-compute", "host": name, "state": state, "status": status, "disabled_reason": "memory is exchanged"}
	}
	return answers{
		"os-services": {"services": []any{host("n1", "up", "enabled"), host("n2", "down", "enabled"), host("n3", "up", "disabled")}},
		"limits": {"limits": map[string]any{"absolute": map[string]any{
			"maxTotalInstances": 10, "totalInstancesUsed": 6, "maxTotalCores": 20, "totalCoresUsed": 12, "maxTotalRAMSize": -1, "totalRAMUsed": 99,
		}}},
		"flavors/detail": {"flavors": []any{map[string]any{"id": "7", "name": "vm", "vcpus": 2, "ram": 1024, "disk": 0}}},
	}
}

// What is wrong with a job is told before its image is uploaded.
func TestAnUploadIsNotInVain(t *testing.T) {
	server := func(host string) Server { return Server{Name: "vm", Host: host} }
	good := Request{Job: "7.0", Flavor: "vm", VCPUs: 2, MemoryMiB: 1024, Network: "guests", Servers: []Server{server("n1"), server("n1"), server("n1"), server("n1")}}
	for name, tt := range map[string]struct {
		change func(*Request)
		want   string // "" is nothing wrong
	}{
		"all is well":     {func(*Request) {}, ""},
		"the flavor":      {func(r *Request) { r.Flavor = "none" }, `there is no flavor "none"`},
		"the flavor size": {func(r *Request) { r.MemoryMiB = 512 }, "all VMs of this site have 2 vCPUs"},
		"the network":     {func(r *Request) { r.Network = "none" }, `there is no network "none"`},
		"a host":          {func(r *Request) { r.Servers[1].Host = "n9" }, "nova has no compute host n9"},
		"a host's state":  {func(r *Request) { r.Servers[1].Host = "n2" }, "nova-compute on host n2 is down"},
		"a host's status": {func(r *Request) { r.Servers[1].Host = "n3" }, "compute host n3 is disabled in nova (memory is exchanged)"},
		"the quota": {func(r *Request) { r.Servers = append(r.Servers, server("n1")) },
			"the project's quota is 10 servers, of which 6 are used, and the job needs 5\nthe project's quota is 20 vCPUs, of which 12 are used, and the job needs 10"},
	} {
		t.Run(name, func(t *testing.T) {
			r, images := good, &faultyGlance{data: map[string]string{}}
			r.Servers, r.Image = append([]Server{}, good.Servers...), imageOf("an image")
			tt.change(&r)
			networks := map[string]any{"networks": []any{}}
			if r.Network == "guests" {
				networks["networks"] = []any{map[string]any{"id": "5", "name": "guests", "project_id": "site"}}
			}
			there := novaWithRoom()
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
