package openstack

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// A neutronOfPolicies is neutron as far as QoS policies go.
type neutronOfPolicies struct {
	policies []map[string]any
	rules    map[string]int // by kind, what it has been given
}

func (f *neutronOfPolicies) answer(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		return reply(200, map[string]any{"policies": f.policies})
	}
	kind := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	var body map[string]map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return nil, err
	}
	if kind == "policies" {
		policy := body["policy"]
		policy["id"] = "1"
		f.policies = append(f.policies, policy)
		return reply(201, map[string]any{"policy": policy})
	}
	for name, rule := range body {
		if f.rules[name] != 0 {
			return reply(409, map[string]any{"NeutronError": map[string]any{"message": "there is one"}})
		}
		for _, field := range []string{"max_kbps", "min_kbps"} {
			if value, ok := rule[field].(float64); ok {
				f.rules[name] = int(value)
			}
		}
	}
	return reply(201, body)
}

// Whichever answers are lost, there is one policy, with one rule of each kind.
func TestALostAnswerMakesNoSecondPolicy(t *testing.T) {
	for lost := range 3 {
		synctest.Test(t, func(t *testing.T) {
			f := &neutronOfPolicies{rules: map[string]int{}}
			n := neutron{serviceOf(&lossy{lost, f.answer})}
			servers := []Server{{VFs: []VF{{"a", Rates{100, 1000}}, {"b", Rates{}}}}, {VFs: []VF{{"c", Rates{100, 1000}}}}}
			made, err := n.getPolicies(t.Context(), "slurm-v:test:7.0", Request{Servers: servers})
			if diff := cmp.Diff(map[Rates]string{{}: "", {100, 1000}: "1"}, made); err != nil || diff != "" {
				t.Errorf("%d lost: %v\n%s", lost, err, diff)
			}
			if diff := cmp.Diff(map[string]int{"bandwidth_limit_rule": 1_000_000, "minimum_bandwidth_rule": 100_000}, f.rules); len(f.policies) != 1 || diff != "" {
				t.Errorf("%d lost: policies %v\n%s", lost, f.policies, diff)
			}
		})
	}
}
