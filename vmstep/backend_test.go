package vmstep

import (
	"testing"
)

// All nodes have told their back-end before two kinds are an error, so that it names all of them.
func TestTheErrorAboutTwoKindsNamesAllNodes(t *testing.T) {
	const libvirt, cloud = "libvirt", "openstack"
	for name, tt := range map[string]struct {
		nodes []string
		kinds []string
		want  string
	}{
		"one kind":               {[]string{"n1", "n2"}, []string{cloud, cloud}, ""},
		"two kinds":              {[]string{"n3", "n2", "n1"}, []string{cloud, libvirt, cloud}, "VMs are made by libvirt on n2 and by openstack on n1, n3: choose nodes of one kind by --partition, --constraint or --exclude"},
		"a node has not told it": {[]string{"n1", "n2"}, []string{cloud, libvirt}, ""},
		"a node tells it twice":  {[]string{"n1", "n1"}, []string{cloud, libvirt}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := len(tt.nodes)
			if name == "a node has not told it" {
				nodes++
			}
			s := newStep(nodes, newHistory(Event{State: StateStarting}))
			for i, node := range tt.nodes {
				s.message(Message{Node: node, Kind: KindBackend, Body: []byte(`{"type":"` + tt.kinds[i] + `"}`)})
			}
			got := ""
			if s.failure != nil {
				got = s.failure.Error
			}
			if got != tt.want {
				t.Errorf("%q", got)
			}
		})
	}
}
