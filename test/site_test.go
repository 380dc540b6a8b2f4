//go:build cluster

package test

import (
	"os"
	"strings"
	"testing"
)

// The nodes let users do what they may do on nodes of sites: open /dev/net/tun, and
// trace processes of their own. A defence that needs them kept from it must be seen to
// fail here. Others' processes, and the machine's device, are none of theirs.
func TestNodesAreLikeThoseOfSites(t *testing.T) {
	t.Parallel()
	if scope, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); err == nil && strings.TrimSpace(string(scope)) != "0" {
		t.Skip("this machine keeps users from tracing their own processes, as sites' nodes do not: sysctl kernel.yama.ptrace_scope=0")
	}
	for _, node := range []string{"n1", "n2"} {
		out := alice.must(t, `
(exec 3<> /dev/net/tun) && echo "tun: opened"
sleep 60 & sleeper=$!
# Who may open a process's memory may trace it. The subshell is no parent of the sleeper.
may_trace() { (exec 3< /proc/$1/mem) 2> /dev/null && echo yes || echo no; }
echo "own: $(may_trace $sleeper)"
echo "root's: $(may_trace 1)"
kill $sleeper`, "--node", node)
		contains(t, out, "tun: opened", "own: yes", "root's: no")
		if mode := root.must(t, "stat -c '%a %t:%T' /dev/net/tun", "--node", node); mode != "666 a:c8" {
			t.Errorf("/dev/net/tun of %s is %s", node, mode)
		}
	}
}
