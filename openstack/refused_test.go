package openstack

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/quotasets"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/services"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/quotas"
)

// What an administrator of the cloud forbids, recorded as the tests of cloud_test.go are.

// A disabled host takes no VMs. The job reads the administrator's reason, and nothing is made for it.
func TestADisabledHost(t *testing.T) {
	withCloud(t, func(t *testing.T, c *Cloud) {
		hosts, err := c.nova.computeHosts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		set := func(opts services.UpdateOpts) {
			t.Helper()
			if _, err := services.Update(t.Context(), c.nova.api, hosts["n2"].ID, opts).Extract(); err != nil {
				t.Fatal(err)
			}
		}
		set(services.UpdateOpts{Status: services.ServiceDisabled, DisabledReason: "memory is exchanged"})
		err = c.Create(t.Context(), request("18.0", "n1", "n2"))
		set(services.UpdateOpts{Status: services.ServiceEnabled})
		if err == nil || !strings.Contains(err.Error(), "compute host n2 is disabled in nova (memory is exchanged)") {
			t.Error(err)
		}
		nothingLeft(t, c)
	})
}

// A job that needs more than the project may have reads the quota's name, and nothing of it is left.
func TestQuotas(t *testing.T) {
	catalogue := func(*Request) {}
	upload := func(r *Request) { r.Image = imageOf(strings.Repeat("\x00", 1<<16)) }
	for name, tt := range map[string]struct {
		limit  func(t *testing.T, c *Cloud, most int)
		change func(*Request)
		want   string
	}{
		"servers":              {limitServers, catalogue, "Quota exceeded for instances: Requested 1, but already used 0 of 0 instances"},
		"servers of an upload": {limitServers, upload, "the project's quota is 0 servers, of which 0 are used, and the job needs 1"},
		"ports":                {limitPorts, catalogue, "Quota exceeded for resources: ['port']"},
		"ports of an upload":   {limitPorts, upload, "the project's quota is 0 ports, of which 0 are used, and the job needs 1"},
	} {
		t.Run(name, func(t *testing.T) {
			withCloud(t, func(t *testing.T, c *Cloud) {
				r := request("19.0", "n1")
				tt.change(&r)
				tt.limit(t, c, 0)
				err := c.Create(t.Context(), r)
				tt.limit(t, c, -1)
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v\nwant %s", err, tt.want)
				}
				if err := c.Delete(t.Context(), r.Job); err != nil {
					t.Error(err)
				}
				nothingLeft(t, c)
			})
		})
	}
}

// limitServers lets the project have so many servers; -1 is any number.
func limitServers(t *testing.T, c *Cloud, most int) {
	t.Helper()
	if _, err := quotasets.Update(t.Context(), c.nova.api, c.nova.project, quotasets.UpdateOpts{Instances: &most}).Extract(); err != nil {
		t.Fatal(err)
	}
}

// limitPorts lets it have so many ports.
func limitPorts(t *testing.T, c *Cloud, most int) {
	t.Helper()
	if _, err := quotas.Update(t.Context(), c.neutron.api, c.neutron.project, quotas.UpdateOpts{Port: &most}).Extract(); err != nil {
		t.Fatal(err)
	}
}

// A token that keystone has revoked is renewed by the first service that refuses it, and the job gets its VM.
func TestARevokedToken(t *testing.T) {
	withCloud(t, func(t *testing.T, c *Cloud) {
		keystone := c.nova.api.ProviderClient
		revoked := keystone.Token()
		response, err := keystone.Request(t.Context(), http.MethodDelete, keystone.IdentityEndpoint+"auth/tokens", &gophercloud.RequestOpts{
			MoreHeaders: map[string]string{"X-Subject-Token": revoked}, OkCodes: []int{http.StatusNoContent},
		})
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if err := begin(t, c, request("20.0", "n1")); err != nil {
			t.Error(err)
		}
	})
}
