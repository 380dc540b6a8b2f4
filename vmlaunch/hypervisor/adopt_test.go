package hypervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What nova 26.2 writes into the description of a domain.
const novaInstance = `<instance xmlns="http://openstack.org/xmlns/libvirt/nova/1.1">
  <package version="26.2.2"/>
  <name>slurmv-7.0-vm1-0123456789abcdef</name>
  <creationTime>2026-11-24 22:00:00</creationTime>
  <flavor name="slurm-v:lab:7.0@b"><memory>384</memory><disk>2</disk><swap>0</swap><ephemeral>0</ephemeral><vcpus>1</vcpus></flavor>
  <owner><user uuid="a">admin</user><project uuid="b">admin</project></owner>
  <root type="image" uuid="c"/>
  <ports>
    <port uuid="d"><ip type="fixed" address="10.88.1.5" ipVersion="4"/><ip type="fixed" address="fd00::5" ipVersion="6"/></port>
    <port uuid="e"><ip type="fixed" address="10.99.0.7" ipVersion="4"/><ip type="floating" address="192.0.2.1" ipVersion="4"/></port>
  </ports>
</instance>`

// Users read what to do about a region that cannot be plugged in; only a VM without slots needs other hardware.
func TestWhyADeviceIsRefused(t *testing.T) {
	for words, want := range map[string]struct{ noRoom, noAccess bool }{
		"internal error: No more available PCI slots":                                                  {noRoom: true},
		"internal error: can't open backing store /dev/shm/slurm-v-7 for guest RAM: Permission denied": {noAccess: true},
		"internal error: Duplicate device ID 'shmem0'":                                                 {},
	} {
		got := reasonOf(errors.New(words))
		if errors.Is(got, ErrNoRoom) != want.noRoom || errors.Is(got, ErrNoAccess) != want.noAccess || !strings.HasSuffix(got.Error(), words) {
			t.Errorf("%s: %v", words, got)
		}
	}
}

func TestParseInstance(t *testing.T) {
	want := Instance{Name: "slurmv-7.0-vm1-0123456789abcdef", Addresses: []string{"10.88.1.5", "10.99.0.7"}}
	if diff := cmp.Diff(want, parseInstance(novaInstance)); diff != "" {
		t.Error(diff)
	}
	if got := parseInstance("<instance"); got.Name != "" {
		t.Errorf("of half a description: %v", got)
	}
}

// libvirt's driver for tests has domains whose descriptions are in a file.
func TestInstances(t *testing.T) {
	const domain = `<domain type="test"><name>%s</name><uuid>%s</uuid><memory>8192</memory><os><type>hvm</type></os><metadata>%s</metadata></domain>`
	other := strings.ReplaceAll(novaInstance, "vm1", "vm2")
	path := filepath.Join(t.TempDir(), "node.xml")
	text := "<node>" + fmt.Sprintf(domain, "instance-1", someUUID, novaInstance) +
		fmt.Sprintf(domain, "instance-2", strings.ReplaceAll(someUUID, "1", "2"), other) +
		fmt.Sprintf(domain, "by-hand", strings.ReplaceAll(someUUID, "1", "3"), "") + "</node>"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := Connect("test://" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const server, absent = "slurmv-7.0-vm1-0123456789abcdef", "slurmv-7.0-vm3-0123456789abcdef"
	found, err := d.Instances(server, absent)
	if is := found[server]; err != nil || len(found) != 1 || is.Domain == nil || is.Domain.UUID() != someUUID || is.Domain.name != "instance-1" || len(is.Addresses) != 2 {
		t.Errorf("%+v, %v", found, err)
	}
	uuids, err := d.InstanceUUIDs(server, absent)
	if diff := cmp.Diff(map[string]string{server: someUUID}, uuids); diff != "" || err != nil {
		t.Error(diff, err)
	}
}
