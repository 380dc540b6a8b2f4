//go:build !noguests

package serve

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/internal/mountinfo"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/play"
)

// An agent that serves has what that takes, and until the map is out what that takes.
func TestServingAgentHasFewPrivileges(t *testing.T) {
	const serving = "CapInh 0000000000000000 CapPrm 0000000000000020 CapEff 0000000000000020 CapBnd 0000000000000000 CapAmb 0000000000000000 NoNewPrivs 1"
	for nodes, before := range map[int]string{1: serving, 2: strings.ReplaceAll(serving, "0020", "1020")} {
		agent, socket, _ := startAgent(t, agentPart{Nodes: nodes})
		threads := filepath.Join("/proc", strconv.Itoa(agent.Process.Pid), "task/*/status")
		if got := play.Privileges(t, threads); got != before {
			t.Errorf("%d nodes, before the map: %s; want %s", nodes, got, before)
		}
		client, err := nodeagent.Dial(t.Context(), socket)
		if err != nil {
			t.Fatal(err)
		}
		holder, err := client.Hold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer holder.Close()
		_ = holder.SendMap(t.Context(), []nodeagent.NodeVMs{{}}) // whatever becomes of it
		if got := play.Privileges(t, threads); got != serving {
			t.Errorf("%d nodes, after the map: %s; want %s", nodes, got, serving)
		}
	}
}

func TestHidesProcesses(t *testing.T) {
	line := func(mount, options string) string {
		return "24 30 0:22 / " + mount + " rw,nosuid shared:13 - proc proc rw" + options + "\n"
	}
	tests := map[string]struct {
		text string
		want bool
	}{
		"nobody":                 {line("/proc", ""), false},
		"nothing, in words":      {line("/proc", ",hidepid=off"), false},
		"nothing, as a number":   {line("/proc", ",hidepid=0"), false},
		"other users' processes": {line("/proc", ",hidepid=invisible"), true},
		"but from a group":       {line("/proc", ",gid=27,hidepid=2"), true},
		"in another place":       {line("/jail/proc", ",hidepid=2") + line("/proc", ""), false},
		"nothing is mounted":     {"", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := hidesProcesses(mountinfo.Parse(tt.text)); got != tt.want {
				t.Errorf("hidesProcesses = %v, want %v", got, tt.want)
			}
		})
	}
}
