package vmlaunch

import (
	"slices"
	"sync"
	"time"

	"github.com/slurm-v/slurm-v/vmlaunch/hypervisor"
)

// lookEvery is the pause between two looks at the domains of nova's libvirtd.
const lookEvery = 200 * time.Millisecond

// A lookout looks for the job's servers among the domains of nova's libvirtd. All VMs of the node that wait share its looks,
// because each look reads the descriptions of all domains of the node.
type lookout struct {
	look func(servers ...string) (map[string]hypervisor.Instance, error)

	mu     sync.Mutex
	absent []string // servers
	seen   map[string]hypervisor.Instance
	looked time.Time
	failed error // of the last look
}

func newLookout(look func(servers ...string) (map[string]hypervisor.Instance, error), servers []string) *lookout {
	return &lookout{look: look, absent: servers, seen: map[string]hypervisor.Instance{}}
}

// see returns the server's domain if the last look, which is younger than lookEvery, has seen it run.
func (l *lookout) see(server string) (is hypervisor.Instance, runs bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if is, runs = l.seen[server]; runs {
		return is, true, nil
	}
	if time.Since(l.looked) >= lookEvery {
		l.lookAgain()
	}
	is, runs = l.seen[server]
	return is, runs, l.failed
}

func (l *lookout) lookAgain() {
	var found map[string]hypervisor.Instance
	found, l.failed = l.look(l.absent...)
	l.looked = time.Now()
	for server, is := range found {
		l.seen[server] = is
	}
	l.absent = slices.DeleteFunc(l.absent, func(server string) bool { _, seen := found[server]; return seen })
}
