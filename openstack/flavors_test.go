package openstack

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A site's own flavor is for jobs whose VMs are as large: nova would give others the flavor's size without a word.
func TestTheSitesFlavor(t *testing.T) {
	const other = `all VMs of this site have 2 vCPUs, 4096 MiB of memory and 20 GiB of disk (flavor "vm"), and the job wants `
	for name, tt := range map[string]struct {
		flavor string
		disk   int
		wants  Request
		want   string // "" is no error
	}{
		"as large":               {"vm", 20, Request{VCPUs: 2, MemoryMiB: 4096, DiskMiB: 3072}, ""},
		"the disk of its image":  {"vm", 0, Request{VCPUs: 2, MemoryMiB: 4096, DiskMiB: 3072}, ""},
		"more vCPUs":             {"vm", 20, Request{VCPUs: 4, MemoryMiB: 4096, DiskMiB: 3072}, other + "4, 4096 MiB and 3072 MiB (--vcpu-per-vm, --memory-per-vm, --disk-size)"},
		"fewer vCPUs":            {"vm", 20, Request{VCPUs: 1, MemoryMiB: 4096, DiskMiB: 3072}, other + "1, "},
		"more memory":            {"vm", 20, Request{VCPUs: 2, MemoryMiB: 8192, DiskMiB: 3072}, other + "2, 8192 MiB"},
		"less memory":            {"vm", 20, Request{VCPUs: 2, MemoryMiB: 384, DiskMiB: 3072}, other + "2, 384 MiB"},
		"a larger disk":          {"vm", 20, Request{VCPUs: 2, MemoryMiB: 4096, DiskMiB: 20<<10 + 1}, other + "2, 4096 MiB and 20481 MiB"},
		"a flavor of other name": {"large", 20, Request{VCPUs: 2, MemoryMiB: 4096}, `there is no flavor "large" (backend.flavor)`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.wants.Flavor = tt.flavor
				its := map[string]any{"id": "7", "name": "vm", "vcpus": 2, "ram": 4096, "disk": tt.disk}
				there := answers{"flavors/detail": {"flavors": []any{its}}}
				id, err := nova{serviceOf(there)}.getFlavor(t.Context(), "m", tt.wants)
				if tt.want == "" && (err != nil || id != "7") || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
					t.Errorf("%q, %v", id, err)
				}
			})
		})
	}
}

// A novaOfFlavors makes a flavor.
type novaOfFlavors struct {
	made    []any
	allowed int           // requests that let the project use it
	slow    time.Duration // it has one so much later, and a proxy has given up waiting
	since   time.Time
}

func (f *novaOfFlavors) answer(r *http.Request) (*http.Response, error) {
	switch {
	case r.Method != http.MethodPost && time.Now().Before(f.since):
		return reply(200, map[string]any{"flavors": []any{}})
	case r.Method != http.MethodPost:
		return reply(200, map[string]any{"flavors": f.made})
	case strings.HasSuffix(r.URL.Path, "/action"):
		if f.allowed++; f.allowed > 1 {
			return reply(409, map[string]any{})
		}
		return reply(200, map[string]any{"flavor_access": []any{}})
	}
	if len(f.made) > 0 {
		return reply(409, map[string]any{"conflictingRequest": map[string]any{"message": "Flavor with name m@site already exists."}})
	}
	f.made = append(f.made, map[string]any{"id": "9", "name": "m@site"})
	if f.since = time.Now().Add(f.slow); f.slow > 0 {
		return reply(504, nil)
	}
	return reply(200, map[string]any{"flavor": f.made[0]})
}

// A flavor whose making nobody has confirmed is the job's, and the project may use it.
func TestALostAnswerMakesNoSecondFlavor(t *testing.T) {
	for lost := range 3 {
		synctest.Test(t, func(t *testing.T) {
			f := &novaOfFlavors{made: []any{}}
			id, err := nova{serviceOf(&lossy{lost, f.answer})}.getFlavor(t.Context(), "m", Request{VCPUs: 1, MemoryMiB: 384})
			if err != nil || id != "9" || len(f.made) != 1 || f.allowed == 0 {
				t.Errorf("%d answers lost: %q, %v; made %v, allowed %d times", lost, id, err, f.made, f.allowed)
			}
		})
	}
}

// nova takes longer to make a flavor than a proxy waits. A second request would be refused, as names of flavors are unique.
func TestALateAnswerMakesNoSecondFlavor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &novaOfFlavors{made: []any{}, slow: time.Minute}
		id, err := nova{serviceOf(&lossy{0, f.answer})}.getFlavor(t.Context(), "m", Request{VCPUs: 1, MemoryMiB: 384})
		if err != nil || id != "9" || f.allowed == 0 {
			t.Errorf("%q, %v; allowed %d times", id, err, f.allowed)
		}
	})
}
