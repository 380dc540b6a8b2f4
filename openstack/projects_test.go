package openstack

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
)

// answers are a service that answers each path the same.
type answers map[string]map[string]any

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	for path, body := range a {
		if strings.HasSuffix(r.URL.Path, path) {
			answer, err := reply(200, body)
			answer.Request = r
			return answer, err
		}
	}
	answer, err := reply(404, nil)
	answer.Request = r
	return answer, err
}

func (a answers) service() service {
	provider := &gophercloud.ProviderClient{HTTPClient: http.Client{Transport: a}}
	return service{api: &gophercloud.ServiceClient{ProviderClient: provider, Endpoint: "http://cloud/"}, project: "site"}
}

// Administrators see what other projects have. It is neither used nor removed.
func TestOtherProjectsAreLeftAlone(t *testing.T) {
	there := answers{
		"images": {"images": []any{
			map[string]any{"id": "theirs", "name": "demo", "visibility": "private", "owner": "other", "status": "active"},
			map[string]any{"id": "ours", "name": "demo", "visibility": "private", "owner": "site", "status": "active"},
		}},
		"networks": {"networks": []any{
			map[string]any{"id": "theirs", "name": "guests", "project_id": "other"},
			map[string]any{"id": "shared", "name": "guests", "project_id": "admin", "shared": true},
		}},
		"ports": {"ports": []any{
			map[string]any{"id": "theirs", "description": "m", "project_id": "other"},
			map[string]any{"id": "ours", "description": "m", "project_id": "site"},
		}},
	}
	if id, err := (glance{there.service()}).getImage(t.Context(), "m", Image{Name: "demo"}); id != "ours" {
		t.Errorf("image %s, %v", id, err)
	}
	if id, err := (neutron{there.service()}).findNetwork(t.Context(), "guests"); id != "shared" {
		t.Errorf("network %s, %v", id, err)
	}
	if ports, err := (neutron{there.service()}).portsOf(t.Context(), "m"); len(ports) != 1 || ports[0].ID != "ours" {
		t.Errorf("ports %v, %v", ports, err)
	}
}
