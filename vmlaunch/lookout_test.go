package vmlaunch

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slurm-v/slurm-v/vmlaunch/hypervisor"
)

// However many VMs of a node wait, the node looks as often as one would, and not for those that it has seen.
func TestVMsThatWaitShareTheirLooks(t *testing.T) {
	const vms, waits = 64, 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		began, looks := time.Now(), 0
		var servers []string
		for i := range vms {
			servers = append(servers, fmt.Sprintf("vm%d", i))
		}
		look := func(absent ...string) (map[string]hypervisor.Instance, error) {
			looks++
			found := map[string]hypervisor.Instance{}
			if len(absent) == vms {
				found["vm0"] = hypervisor.Instance{Name: "vm0"} // it starts first
			} else if time.Since(began) >= waits {
				for _, server := range absent {
					found[server] = hypervisor.Instance{Name: server}
				}
			}
			if len(absent) < vms && len(absent) != vms-1 {
				t.Errorf("it looks for %d servers", len(absent))
			}
			return found, nil
		}
		l := newLookout(look, servers)
		var all sync.WaitGroup
		for i := range vms {
			all.Go(func() {
				server := fmt.Sprintf("vm%d", i)
				for {
					is, runs, err := l.see(server)
					if err != nil || runs && is.Name != server {
						t.Errorf("%s is %v, %v", server, is, err)
					}
					if runs {
						break
					}
					time.Sleep(lookEvery)
				}
				if took := time.Since(began); server != "vm0" && (took < waits || took > waits+2*lookEvery) {
					t.Errorf("%s was seen after %v", server, took)
				}
			})
		}
		all.Wait()
		if most := int(waits/lookEvery) + 2; looks > most || looks < most/2 {
			t.Errorf("%d looks for %d VMs in %v, at most %d are needed", looks, vms, waits, most)
		}
	})
}

// A libvirtd that does not answer fails those that wait, and none that it has shown.
func TestALookThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("libvirtd is away")
		var failed error
		look := func(...string) (map[string]hypervisor.Instance, error) {
			return map[string]hypervisor.Instance{"vm0": {Name: "vm0"}}, failed
		}
		l := newLookout(look, []string{"vm0", "vm1"})
		if _, runs, err := l.see("vm0"); !runs || err != nil {
			t.Errorf("vm0 runs: %v, %v", runs, err)
		}
		failed = away
		time.Sleep(lookEvery)
		for server, want := range map[string]error{"vm0": nil, "vm1": away} {
			if _, runs, err := l.see(server); runs != (want == nil) || !errors.Is(err, want) {
				t.Errorf("%s runs: %v, %v", server, runs, err)
			}
		}
	})
}
