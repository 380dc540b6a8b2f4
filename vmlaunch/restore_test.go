package vmlaunch

import (
	"testing"
)

func TestIdentitiesAreUnlike(t *testing.T) {
	seen := map[string]bool{}
	for range 32 {
		id, err := newIdentity("vm0")
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{string(id.Seed), id.MachineID, id.BootID, id.HostKey} {
			if seen[text] || len(text) < 32 {
				t.Errorf("%q came twice, or is too short", text)
			}
			seen[text] = true
		}
	}
}
