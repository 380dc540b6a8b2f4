package openstack

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	if id, err := (glance{serviceOf(there)}).findImage(t.Context(), "demo"); id != "ours" {
		t.Errorf("image %s, %v", id, err)
	}
	if id, err := (neutron{serviceOf(there)}).findNetwork(t.Context(), "guests"); id != "shared" {
		t.Errorf("network %s, %v", id, err)
	}
	if ports, err := (neutron{serviceOf(there)}).portsOf(t.Context(), "m"); len(ports) != 1 || ports[0].ID != "ours" {
		t.Errorf("ports %v, %v", ports, err)
	}
}

// Two clusters of one label in two projects of a cloud may have jobs of the same number. Neither
// uses, counts or deletes the other's flavors and images.
func TestJobsOfOtherProjectsAreLeftAlone(t *testing.T) {
	const mark = "slurm-v:lab:7.0"
	of := func(project string) service {
		return serviceOf(answers{
			"flavors/detail": {"flavors": []any{map[string]any{"id": "flavor", "name": mark + "@" + project}}},
			"images":         {"images": []any{map[string]any{"id": "image", "owner": project, "tags": []string{mark}, "status": "saving"}}},
		})
	}
	for project, want := range map[string]int{"other": 0, "site": 1} {
		there := of(project)
		flavors, err1 := nova{there}.flavorsOf(t.Context(), mark)
		flavorMarks, err2 := nova{there}.markedFlavors(t.Context())
		images, err3 := glance{there}.imagesOf(t.Context(), mark)
		imageMarks, err4 := glance{there}.markedImages(t.Context())
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			t.Fatal(err)
		}
		got := []int{len(flavors), len(flavorMarks), len(images), len(imageMarks)}
		if diff := cmp.Diff([]int{want, want, want, want}, got); diff != "" {
			t.Errorf("of project %s: flavors, their marks, images, their marks (-want +got):\n%s", project, diff)
		}
		if want == 1 && (flavorMarks[0] != mark || imageMarks[0] != mark) {
			t.Errorf("marks %v, %v", flavorMarks, imageMarks)
		}
	}
}
