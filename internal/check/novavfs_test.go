package check

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/slurm-v/slurm-v/vfpool/device"
)

// Whichever way nova's options name a card, its VFs are found among them.
func TestNovasVFs(t *testing.T) {
	card := device.PF{Name: "eth1", PCI: "0000:5e:00.0", VFs: []device.VF{{PCI: "0000:5e:02.0"}, {PCI: "0000:5e:02.1"}}}
	root := t.TempDir()
	sys := filepath.Join(root, "sys/bus/pci/devices", card.PCI)
	if err := os.MkdirAll(sys, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(sys, "vendor"), []byte("0x15b3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		`device_spec = {"devname": "eth1"}`:                                            true,
		`device_spec = {"devname": "eth2"}`:                                            false,
		`passthrough_whitelist = [{"devname": "eth2"}, {"devname": "eth1"}]`:           true,
		"device_spec = {\"devname\": \"eth2\"}\ndevice_spec = {\"devname\": \"eth1\"}": true,
		"device_spec = [{\"devname\": \"eth2\"},\n  {\"devname\": \"eth1\"}]":          true,
		`device_spec = {"address": "0000:5e:00.0"}`:                                    true,
		`device_spec = {"address": "*:5e:02.*"}`:                                       true,
		`device_spec = {"address": ":5e:02.1"}`:                                        true,
		`device_spec = {"address": "02.1"}`:                                            true,
		`device_spec = {"address": "5f:02"}`:                                           false,
		`device_spec = {"address": "0000:5e:03.*", "vendor_id": "15b3"}`:               false,
		`device_spec = {"vendor_id": "15b3", "product_id": "1014"}`:                    true,
		`device_spec = {"vendor_id": "8086"}`:                                          false,
		`device_spec = {"address": {"bus": "5.", "slot": ".*"}}`:                       true,
		`device_spec = {"devname": "eth1"`:                                             false, // nova does not start with it
		`# device_spec = {"devname": "eth1"}`:                                          false,
		"alias = {}\n[libvirt]\ndevice_spec = {\"devname\": \"eth1\"}":                 false,
	} {
		i := &inspection{Preflight: Preflight{Root: root}, pfs: []device.PF{card}}
		found := false
		for _, spec := range parseNovaSpecs("[DEFAULT]\nhost = n1\n[pci]\n"+text+"\n", "/etc/nova/nova.conf") {
			found = found || i.covers(spec, card)
		}
		if found != want {
			t.Errorf("%s: the card is found: %v", text, found)
		}
	}
}
