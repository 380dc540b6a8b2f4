package check

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/vfpool/device"
)

// novaFiles are where the options of nova-compute are, as packages and as Kolla's containers have them.
var novaFiles = []string{"/etc/nova/nova.conf", "/etc/nova/nova-compute.conf", "/etc/nova/nova.conf.d/*.conf", "/etc/kolla/nova-compute/nova.conf"}

// novaVFs warns of cards whose VFs nova gives to VMs of its own on this node: neither nova nor the pool asks the other which
// VFs are taken.
func novaVFs(i *inspection) []Result {
	if i.cfgErr != nil {
		return nil
	}
	var results []Result
	for _, spec := range i.novaSpecs() {
		for _, pf := range i.pfs {
			if i.cfg.VF.Allows(pf.Name) && i.covers(spec, pf) {
				results = append(results, warning(vfsName, fmt.Sprintf("%s: nova gives its VFs to VMs, too (%s)", pf.Name, spec.from),
					"leave the card to one of the two: name the other cards in vf.pfs, or take it out of nova's "+spec.option))
			}
		}
	}
	return results
}

// A novaSpec says which PCI devices nova gives to VMs: https://docs.openstack.org/nova/latest/configuration/config.html#pci.device_spec
type novaSpec struct {
	Devname string `json:"devname"`
	Vendor  string `json:"vendor_id"`
	Address any    `json:"address"` // a glob, or an object of regular expressions

	option, from string // its name, and the file's
}

// novaSpecs reads them from the files of nova-compute. What nova cannot read either is left out.
func (i *inspection) novaSpecs() (specs []novaSpec) {
	for _, pattern := range novaFiles {
		files, _ := filepath.Glob(i.path(pattern))
		for _, file := range files {
			text, err := os.ReadFile(file)
			below, relErr := filepath.Rel(i.Root, file)
			if err == nil && relErr == nil {
				specs = append(specs, parseNovaSpecs(string(text), "/"+below)...)
			}
		}
	}
	return specs
}

// continued is where a value goes on in the next line, which is indented.
var continued = regexp.MustCompile(`\n[ \t]+`)

// parseNovaSpecs finds the options of section pci that name devices: a value is one of them in JSON, or a list of them.
func parseNovaSpecs(text, from string) (specs []novaSpec) {
	section := ""
	for line := range strings.Lines(continued.ReplaceAllString(text, " ")) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = line
		}
		name, value, _ := strings.Cut(line, "=")
		name = strings.TrimSpace(name)
		if section != "[pci]" || name != "device_spec" && name != "passthrough_whitelist" {
			continue
		}
		if value = strings.TrimSpace(value); !strings.HasPrefix(value, "[") {
			value = "[" + value + "]"
		}
		var some []novaSpec
		if json.Unmarshal([]byte(value), &some) != nil {
			continue
		}
		for _, spec := range some {
			spec.option, spec.from = name, from
			specs = append(specs, spec)
		}
	}
	return specs
}

// covers reports whether nova may give VFs of the card to VMs. One that is named by regular expressions may be any.
func (i *inspection) covers(spec novaSpec, pf device.PF) bool {
	if spec.Devname != "" {
		return spec.Devname == pf.Name
	}
	return i.ofVendor(spec, pf) && spec.matches(pf)
}

// ofVendor reports whether the card is the vendor's, or it is not known whose it is.
func (i *inspection) ofVendor(spec novaSpec, pf device.PF) bool {
	vendor, err := os.ReadFile(i.path("/sys/bus/pci/devices/" + pf.PCI + "/vendor"))
	return err != nil || spec.Vendor == "" || spec.Vendor == "*" || strings.TrimSpace(string(vendor)) == "0x"+spec.Vendor
}

// matches compares addresses. nova takes a PF for all of its VFs.
func (s novaSpec) matches(pf device.PF) bool {
	glob, isGlob := s.Address.(string)
	is := func(address string) bool {
		match, err := path.Match(wholeAddress(glob), address)
		return match && err == nil
	}
	return !isGlob || is(pf.PCI) || slices.ContainsFunc(pf.VFs, func(vf device.VF) bool { return is(vf.PCI) })
}

// wholeAddress completes an address of nova's, [[[domain]:bus]:]slot[.function]: what is left out may be anything.
func wholeAddress(glob string) string {
	rest, function, _ := strings.Cut(glob, ".")
	parts := append([]string{"", "", ""}, strings.Split(rest, ":")...)
	parts = append(parts[len(parts)-3:], function)
	for i, part := range parts {
		if part == "" {
			parts[i] = "*"
		}
	}
	return parts[0] + ":" + parts[1] + ":" + parts[2] + "." + parts[3]
}
