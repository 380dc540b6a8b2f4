package config

import "fmt"

// Backend says who makes the VMs.
type Backend struct {
	Type BackendType `toml:"type"`

	// For OpenStack.
	CloudsFile string `toml:"clouds_file"` // absolute path of clouds.yaml
	Cloud      string `toml:"cloud"`       // its name there
	Label      string `toml:"label"`       // of this Slurm cluster, in names and tags
	Flavor     string `toml:"flavor"`      // of all VMs; "" makes one for each job
	Zone       string `toml:"zone"`        // availability zone; "" leaves it to nova
	VFNetwork  string `toml:"vf_network"`  // of virtual functions; "" for none
	Libvirt    string `toml:"libvirt"`     // URI of nova's libvirtd on a node
}

// BackendType is the kind of a Backend.
type BackendType string

// The values of BackendType.
const (
	BackendLibvirt   BackendType = "libvirt"   // the node's agent, with a libvirt of its own
	BackendOpenStack BackendType = "openstack" // nova, on the nodes that Slurm chooses
)

func defaultBackend() Backend {
	return Backend{
		Type: BackendLibvirt, CloudsFile: "/etc/slurm-v/clouds.yaml", Cloud: "slurm-v", Label: "slurm-v",
		Libvirt: "qemu:///system",
	}
}

func (c Config) validateBackend() error {
	b := c.Backend
	return firstOf(
		oneOf("backend.type", b.Type, BackendLibvirt, BackendOpenStack),
		absolute("backend.clouds_file", b.CloudsFile),
		entryName("backend.cloud", b.Cloud),
		entryName("backend.label", b.Label), labelFits("backend.label", b.Label),
		c.validateBackendNetworks(),
	)
}

// mostLabel bounds the label. A tag of nova's has at most 60 characters, and that of a job is
// slurm-v:LABEL:JOB.RESTART, with a job's number of up to 10 digits.
const mostLabel = 32

func labelFits(key, label string) error {
	if len(label) > mostLabel {
		return fmt.Errorf("%s: %d characters are too many; use at most %d: nova's tags contain the label and the job's number", key, len(label), mostLabel)
	}
	return nil
}

// validateBackendNetworks checks that each network is one that the back-end can connect VMs to.
func (c Config) validateBackendNetworks() error {
	for name, n := range c.Network {
		if n.Type == "" || (n.Type == NetworkNeutron) == (c.Backend.Type == BackendOpenStack) {
			continue
		}
		if c.Backend.Type == BackendOpenStack {
			return fmt.Errorf("network.%s.type: VMs of OpenStack (backend.type) are on networks of neutron; write type = \"neutron\" and its name", Quote(name))
		}
		return fmt.Errorf("network.%s.type: only OpenStack has networks of neutron; write type = \"openstack\" into [backend], or use another type of network", Quote(name))
	}
	return nil
}

// neutronSubnet checks a subnet, which a network of neutron need not have.
func neutronSubnet(key, text string) error {
	if text == "" {
		return nil
	}
	return vmSubnet(key, text)
}
